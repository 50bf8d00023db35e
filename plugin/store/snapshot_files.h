// The way of a snapshot into a checkpoint, on the thread of a save's job: first the frozen files
// become complete, then each of them becomes a file of the checkpoint, by a link, as a clone, or by
// a copy.
#ifndef MILLPOND_PLUGIN_STORE_SNAPSHOT_FILES_H_
#define MILLPOND_PLUGIN_STORE_SNAPSHOT_FILES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/store_writer.h"
#include "plugin/pipeline/snapshot.h"
#include "plugin/store/save.h"

namespace millpond::plugin {

class SnapshotFiles {
 public:
  // All are borrowed. `bytes_per_s`: the most that copies may take of the drive, 0 for no limit.
  SnapshotFiles(Snapshot& snapshot, checkpoint::StoreWriter& writer, SaveProgress& progress,
                std::uint64_t bytes_per_s);

  // Two steps, in this order: the frozen files become complete, and they come into the checkpoint.
  // Both throw Error, E_CANCELLED where `progress` says so. Memory: one buffer of a few MiB. What
  // is in memory only is written by a few threads at once, since steps wait for it; the rest by
  // this one.
  void complete();
  void place();

  // Buckets that came into the checkpoint without a copy, and those that were copied.
  std::uint64_t taken_in() const { return taken_in_; }
  std::uint64_t copied() const { return copied_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Run {  // whole blocks of one segment of one tile
    std::uint32_t bucket = 0, segment = 0;
    std::uint64_t first_block = 0, blocks = 0;
    std::uint64_t offset = 0, bytes = 0;  // in the file
  };

  void beat() const;
  void write_memory();
  void gather(std::uint32_t tile);
  void write_absent(std::uint32_t tile);
  void place(std::uint32_t bucket);
  void copy(std::uint32_t bucket);
  void keep_to_rate(std::uint64_t bytes);

  // Calls visit(run) for the segment of the tile, in runs that fit the buffer.
  template <typename Visit>
  void in_runs(const Tile& tile, std::uint32_t segment, Visit&& visit) const;
  std::uint64_t block_bytes(std::uint32_t bucket, std::uint32_t segment, std::uint64_t block) const;
  // Sums of the run's blocks: make them, or throw Error(E_CORRUPT) where they are not these.
  void make_sums(const Run& run, const std::byte* bytes);
  void check_sums(const Run& run, const std::byte* bytes, const std::string& path) const;

  Snapshot& snapshot_;
  checkpoint::StoreWriter& writer_;
  SaveProgress& progress_;
  std::uint64_t bytes_per_s_;
  std::unique_ptr<std::byte[], Free> buffer_;
  std::uint64_t buffer_bytes_ = 0;
  std::uint64_t taken_in_ = 0;
  std::uint64_t copied_ = 0;
  std::uint64_t rated_bytes_ = 0;  // since rate_begin_
  std::chrono::steady_clock::time_point rate_begin_{};
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_SNAPSHOT_FILES_H_
