// A save of one store: how far it is, what a commit says of it, and what its manifest says.
#ifndef MILLPOND_PLUGIN_STORE_SAVE_H_
#define MILLPOND_PLUGIN_STORE_SAVE_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "checkpoint/manifest.h"
#include "millpond/checkpoint.h"

namespace millpond::plugin {

struct HeldState;

// The newest save of a store. Written by its job, read by checkpoint/1's poll from any thread.
struct SaveProgress {
  std::atomic<std::uint32_t> state{MILLPOND_SAVE_NONE};
  std::atomic<std::uint64_t> done{0};
  std::atomic<std::uint64_t> total{0};
  std::atomic<bool> cancel{false};  // the job gives up soon
};

// What a commit says of one store.
struct WrittenStore {
  std::string uid;
  std::uint64_t manifest_bytes = 0;
  std::string manifest_digest;
};

// Everything that the manifest says of a store but sizes of files and digests.
checkpoint::Manifest describe(const HeldState& held, const std::string& uid);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_SAVE_H_
