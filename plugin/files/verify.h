// Every byte of a save.
#ifndef MILLPOND_PLUGIN_FILES_VERIFY_H_
#define MILLPOND_PLUGIN_FILES_VERIFY_H_

#include <string>

#include "checkpoint/file_system.h"
#include "plugin/files/work.h"

namespace millpond::plugin {

// Reads all blocks of all stores, several at once. Emits {save_id, stores, blocks, bytes}. Throws
// Error(E_CORRUPT) with file, offset, wanted, got for the first bad block of the first bad store.
void verify_save(checkpoint::FileSystem& fs, const std::string& save_id, const FilesWork& work);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_FILES_VERIFY_H_
