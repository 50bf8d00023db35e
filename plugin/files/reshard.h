// A save for another number of ranks.
#ifndef MILLPOND_PLUGIN_FILES_RESHARD_H_
#define MILLPOND_PLUGIN_FILES_RESHARD_H_

#include <cstdint>
#include <string>

#include "checkpoint/file_system.h"
#include "plugin/files/work.h"

namespace millpond::plugin {

// Writes the newest save of `to`: the same parameters, each cut into `world_size` equal ranges (at
// multiples of 256 elements) of the whole, one store a rank for each kind ("opt0_0", ...). A store
// of any layout loads either. Emits {save_id, world_size, stores, bytes}. Nothing counts in `to`
// unless all is written.
void reshard_save(checkpoint::FileSystem& from, const std::string& save_id,
                  checkpoint::FileSystem& to, std::uint32_t world_size, const FilesWork& work);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_FILES_RESHARD_H_
