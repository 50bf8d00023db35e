// A save of one store: its description, and the tiles' way from scratch files into a checkpoint.
#ifndef MILLPOND_PLUGIN_STORE_SAVE_H_
#define MILLPOND_PLUGIN_STORE_SAVE_H_

#include <string>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "plugin/store/runtime.h"
#include "plugin/store/store.h"

namespace millpond::plugin {

// Everything that the manifest says of a store but sizes of files and digests.
checkpoint::Manifest describe(const HeldState& held, const std::string& uid);

// Writes the flushed state below <save id>/<uid>/ of `fs`, tile by tile, and returns what the
// commit says of it. Throws Error(E_CANCELLED) when the host, or progress.cancel, says so; what was
// written is removed after any failure.
OpenSave::Written write_store(HeldState& held, const std::string& uid, checkpoint::FileSystem& fs,
                              const std::string& save_id, Host& host, SaveProgress& progress);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_SAVE_H_
