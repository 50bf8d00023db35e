// The reverse of reference_import.h, byte by byte.
#ifndef MILLPOND_PLUGIN_FILES_REFERENCE_EXPORT_H_
#define MILLPOND_PLUGIN_FILES_REFERENCE_EXPORT_H_

#include <string>

#include "checkpoint/file_system.h"
#include "plugin/files/work.h"

namespace millpond::plugin {

// Writes <uid>/bucketNNNNN.bin and <uid>/manifest.json below `to` for the stores that the layout
// names. Emits {stores, bytes}. Throws Error(E_UNSUPPORTED) for storage formats that the reference
// does not have.
void export_reference(checkpoint::FileSystem& from, const std::string& save_id,
                      const std::string& layout, checkpoint::FileSystem& to, const FilesWork& work);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_FILES_REFERENCE_EXPORT_H_
