// Checkpoints of the reference implementation become ours.
#ifndef MILLPOND_PLUGIN_FILES_REFERENCE_IMPORT_H_
#define MILLPOND_PLUGIN_FILES_REFERENCE_IMPORT_H_

#include <string>

#include "checkpoint/file_system.h"
#include "plugin/files/work.h"

namespace millpond::plugin {

// `layout` is the JSON text of reference_layout.h. Emits {save_id, world_size, stores, elements,
// bytes}. Throws Error(E_MISMATCH) where files and layout do not agree, before anything counts.
void import_reference(checkpoint::FileSystem& from, const std::string& layout,
                      checkpoint::FileSystem& to, const FilesWork& work);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_FILES_REFERENCE_IMPORT_H_
