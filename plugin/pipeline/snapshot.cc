#include "plugin/pipeline/snapshot.h"

#include <utility>

namespace millpond::plugin {

Snapshot::Snapshot(const Plan& plan, std::string uid, std::uint64_t uid_seed)
    : plan_(plan),
      uid_(std::move(uid)),
      uid_seed_(uid_seed),
      tiles_(plan.tiles.size()),
      pins_(plan.tiles.size()) {}

void Snapshot::written(std::uint32_t tile) {
  {
    const std::lock_guard lock(mutex_);
    pins_[tile].store(0, std::memory_order_release);
    ++unpinned_;
  }
  changed_.notify_all();
}

void Snapshot::give_up() {
  {
    const std::lock_guard lock(mutex_);
    for (auto& pin : pins_) pin.store(0, std::memory_order_release);
    ++unpinned_;
  }
  changed_.notify_all();
}

// A long save is no hanging one: the patience begins anew with every tile.
bool Snapshot::wait_unpinned(std::uint32_t tile, std::chrono::milliseconds patience) {
  for (;;) {
    const std::uint64_t seen = unpinned();
    if (!pinned(tile)) return true;
    if (!wait_any(seen, patience)) return false;
  }
}

bool Snapshot::wait_any(std::uint64_t seen, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (hangs_ && unpinned() == seen) return false;
  hangs_ = !changed_.wait_for(lock, patience, [&] { return unpinned() != seen; });
  return !hangs_;
}

}  // namespace millpond::plugin
