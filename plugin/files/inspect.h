// What a save is, from COMMIT.json and the manifests.
#ifndef MILLPOND_PLUGIN_FILES_INSPECT_H_
#define MILLPOND_PLUGIN_FILES_INSPECT_H_

#include <string>

#include "checkpoint/file_system.h"
#include "plugin/files/work.h"

namespace millpond::plugin {

// `save_id` empty: the newest. Emits {save_id, sequence, world_size, saves: [{save_id, sequence}],
// unreadable: [text], uncommitted: [save_id], stores: [{rank, uid, writer, step, main, exp_avg,
// exp_avg_sq, topology: {axis: [rank, size]}, groups, buckets, shards, elements, bytes}],
// parameters: [{key, global_shape, kind, step, elements, stores}], elements, bytes}. Throws
// Error(E_MISSING, E_CORRUPT, E_VERSION).
void inspect_save(checkpoint::FileSystem& fs, const std::string& save_id, const FilesWork& work);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_FILES_INSPECT_H_
