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
  }
  changed_.notify_all();
}

void Snapshot::give_up() {
  {
    const std::lock_guard lock(mutex_);
    for (auto& pin : pins_) pin.store(0, std::memory_order_release);
  }
  changed_.notify_all();
}

bool Snapshot::wait_unpinned(std::uint32_t tile, std::chrono::milliseconds patience) {
  if (!pinned(tile)) return true;
  std::unique_lock lock(mutex_);
  if (hangs_) return false;
  hangs_ = !changed_.wait_for(lock, patience, [&] { return !pinned(tile); });
  return !hangs_;
}

}  // namespace millpond::plugin
