// What a state held at one moment, for a save: its frozen files, and the tiles whose newest
// contents were still in memory then. Visits go on in new files; a job on another thread brings the
// frozen ones to their final state and never asks the pipeline for anything.
#ifndef MILLPOND_PLUGIN_PIPELINE_SNAPSHOT_H_
#define MILLPOND_PLUGIN_PIPELINE_SNAPSHOT_H_

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugin/io/scratch.h"
#include "plugin/layout/plan.h"

namespace millpond::plugin {

// One set of files of a state, by bucket. Only the newest generation is written to; older ones are
// read for tiles that no visit has rewritten since, and go when there are none left.
struct Generation {
  std::vector<Fd> files;
  std::vector<std::string> paths;  // for messages
  // Of the thread inside the ABI call:
  std::uint64_t tiles = 0;  // whose written contents are here
  // No checkpoint has or had a file of it, by a link or a clone: nobody else can have one open, and
  // they may be written to again, or cut.
  bool ours = true;
};

class Snapshot {
 public:
  struct Tile {
    bool main = false;  // contents that exist
    bool moments = false;
    // The contents are in memory only: in a place of the host tier, until written() or give_up().
    const std::byte* memory = nullptr;
    // The contents are in an older generation's file, at the same offsets. NULL: in the frozen one.
    const Generation* older = nullptr;
  };
  using Sums = std::vector<std::array<std::vector<std::uint64_t>, kSegments>>;

  Snapshot(const Plan& plan, std::string uid, std::uint64_t uid_seed);

  const Plan& plan() const { return plan_; }
  const std::string& uid() const { return uid_; }
  std::uint64_t uid_seed() const { return uid_seed_; }
  const Tile& tile(std::uint32_t t) const { return tiles_[t]; }
  const std::string& path(std::uint32_t bucket) const { return frozen_->paths[bucket]; }

  // Of the job's thread: the frozen files, open for writing, by bucket; block sums by bucket and
  // segment, right but for tiles in memory.
  std::vector<Fd>& files() { return files_; }
  Sums& sums() { return sums_; }
  // Whether a checkpoint may have got a frozen file, by a link or a clone.
  bool& shared() { return shared_; }
  // The tile's memory is not needed any more. Any thread but the ABI call's.
  void written(std::uint32_t tile);
  // No memory is needed any more: the job has ended, well or not.
  void give_up();

  // Of the thread inside the ABI call: whether the job still reads the tile's memory; how many
  // tiles it does not read any more; waiting until it does not read this one, or until these are
  // more than `seen`. False: for `patience` none came; nobody waits a second time then.
  bool pinned(std::uint32_t tile) const { return pins_[tile].load(std::memory_order_acquire) != 0; }
  std::uint64_t unpinned() const { return unpinned_.load(std::memory_order_acquire); }
  bool wait_unpinned(std::uint32_t tile, std::chrono::milliseconds patience);
  bool wait_any(std::uint64_t seen, std::chrono::milliseconds patience);

 private:
  friend class Pipeline;

  Plan plan_;
  std::string uid_;
  std::uint64_t uid_seed_;
  std::vector<Tile> tiles_;
  std::vector<Fd> files_;
  Sums sums_;
  bool shared_ = false;
  std::shared_ptr<Generation> frozen_;
  std::vector<std::shared_ptr<Generation>> older_;  // keeps Tile::older open
  std::vector<std::atomic<std::uint8_t>> pins_;     // by tile
  std::atomic<std::uint64_t> unpinned_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hangs_ = false;  // somebody waited in vain
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PIPELINE_SNAPSHOT_H_
