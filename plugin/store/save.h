// A save of one store: how far it is, what a commit says of it, and what its manifest says.
#ifndef MILLPOND_PLUGIN_STORE_SAVE_H_
#define MILLPOND_PLUGIN_STORE_SAVE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "millpond/checkpoint.h"
#include "plugin/guard/profile.h"
#include "plugin/layout/plan.h"

namespace millpond::plugin {

// The newest save of a store. Written by its job, read by checkpoint/1's poll from any thread.
struct SaveProgress {
  std::atomic<std::uint32_t> state{MILLPOND_SAVE_NONE};
  std::atomic<std::uint64_t> done{0};
  std::atomic<std::uint64_t> total{0};
  std::atomic<std::uint64_t> beats{0};  // grows while the job comes on, also before bytes are done
  std::atomic<bool> cancel{false};      // the job gives up soon
};

// What a commit says of one store.
struct WrittenStore {
  std::string uid;
  std::uint64_t manifest_bytes = 0;
  std::string manifest_digest;
};

// Everything that a manifest says but sizes of files and digests. `moments`: whether any of a
// bucket's tiles has moments.
checkpoint::Manifest describe(const Profile& profile, const Plan& plan,
                              const std::vector<std::uint64_t>& steps, std::uint64_t completed,
                              const std::string& uid,
                              const std::function<bool(const Bucket&)>& moments);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_SAVE_H_
