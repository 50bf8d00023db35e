#include "plugin/store/snapshot_files.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "checkpoint/block_sum.h"
#include "millpond/error.hpp"
#include "plugin/core/thread_pool.h"
#include "plugin/io/os_error.h"
#include "plugin/io/whole_transfer.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kBufferBytes = 4u << 20;
// Writes of memory at once: while some wait for the drive, another makes its sums.
constexpr std::uint64_t kWriters = 4;

// Fewer where the system lets no more threads start: a save gets along with none.
std::unique_ptr<ThreadPool> make_writers(std::uint64_t threads) {
  try {
    return std::make_unique<ThreadPool>(static_cast<std::uint32_t>(threads));
  } catch (const Error&) {
    return std::make_unique<ThreadPool>(1);
  }
}

}  // namespace

SnapshotFiles::SnapshotFiles(Snapshot& snapshot, checkpoint::StoreWriter& writer,
                             SaveProgress& progress, std::uint64_t bytes_per_s)
    : snapshot_(snapshot), writer_(writer), progress_(progress), bytes_per_s_(bytes_per_s) {
  const LayoutOptions& options = snapshot_.plan().options;
  std::uint64_t largest = 0;
  for (const kernels::Storage storage : options.storage) {
    largest = std::max(largest, kernels::block_bytes(storage, options.block_elements));
  }
  buffer_bytes_ = std::max(largest, kBufferBytes);
  buffer_.reset(static_cast<std::byte*>(std::aligned_alloc(kernels::kPageBytes, buffer_bytes_)));
  if (buffer_ == nullptr) throw std::bad_alloc();
  progress_.total = writer_.total_bytes();
}

void SnapshotFiles::complete() {
  const Plan& plan = snapshot_.plan();
  write_memory();  // first: steps may wait for it
  for (std::uint32_t t = 0; t < plan.tiles.size(); ++t) {
    const Snapshot::Tile& tile = snapshot_.tile(t);
    if (tile.memory == nullptr && tile.older != nullptr) gather(t);
    if (!tile.moments) write_absent(t);
  }
}

void SnapshotFiles::place() {
  for (std::uint32_t b = 0; b < snapshot_.plan().buckets.size(); ++b) place(b);
  beat();
}

void SnapshotFiles::beat() const {
  ++progress_.beats;
  if (!progress_.cancel) return;
  throw Error(MILLPOND_E_CANCELLED, "save", "cancelled by the host");
}

template <typename Visit>
void SnapshotFiles::in_runs(const Tile& tile, std::uint32_t segment, Visit&& visit) const {
  std::uint64_t at = 0;
  for (std::uint64_t block = 0; block < tile.blocks;) {
    Run run{tile.bucket, segment, tile.first_block + block, 0, tile.file_offset[segment] + at, 0};
    for (; block < tile.blocks; ++block) {
      const std::uint64_t size = block_bytes(tile.bucket, segment, tile.first_block + block);
      if (run.blocks != 0 && run.bytes + size > buffer_bytes_) break;
      ++run.blocks;
      run.bytes += size;
    }
    at += run.bytes;
    visit(run);
  }
}

std::uint64_t SnapshotFiles::block_bytes(std::uint32_t bucket, std::uint32_t segment,
                                         std::uint64_t block) const {
  const Plan& plan = snapshot_.plan();
  return kernels::block_bytes(plan.options.storage[segment],
                              plan.elements_of_block(plan.buckets[bucket], block));
}

void SnapshotFiles::make_sums(const Run& run, const std::byte* bytes) {
  for (std::uint64_t block = run.first_block; block < run.first_block + run.blocks; ++block) {
    const std::uint64_t size = block_bytes(run.bucket, run.segment, block);
    snapshot_.sums()[run.bucket][run.segment][block] =
        checkpoint::block_sum(snapshot_.uid_seed(), run.bucket, run.segment, block, bytes, size);
    bytes += size;
  }
}

void SnapshotFiles::check_sums(const Run& run, const std::byte* bytes,
                               const std::string& path) const {
  std::uint64_t at = run.offset;
  for (std::uint64_t block = run.first_block; block < run.first_block + run.blocks; ++block) {
    const std::uint64_t size = block_bytes(run.bucket, run.segment, block);
    const std::uint64_t sum = checkpoint::block_sum(snapshot_.uid_seed(), run.bucket, run.segment,
                                                    block, bytes + (at - run.offset), size);
    const std::uint64_t wanted = snapshot_.sums()[run.bucket][run.segment][block];
    if (sum != wanted) {
      throw Error(MILLPOND_E_CORRUPT, "save",
                  "the checksum of block " + std::to_string(block) + " of " +
                      checkpoint::segment_name(run.segment) +
                      " is wrong: what was read is not what was written there last")
          .path(path)
          .at(at)
          .want(wanted, sum)
          .remedy("Load a checkpoint; check the drive and the memory of this node");
    }
    at += size;
  }
}

void SnapshotFiles::write_memory() {
  const Plan& plan = snapshot_.plan();
  struct Write {
    std::uint32_t tile = 0;
    Run run;
    const std::byte* bytes = nullptr;
  };
  std::vector<Write> writes;
  std::vector<std::atomic<std::uint32_t>> left(plan.tiles.size());  // writes, by tile
  for (std::uint32_t t = 0; t < plan.tiles.size(); ++t) {
    const Tile& tile = plan.tiles[t];
    const Snapshot::Tile& kept = snapshot_.tile(t);
    if (kept.memory == nullptr) continue;
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      if (tile.bytes[s] == 0 || !(s == MILLPOND_SEGMENT_MAIN ? kept.main : kept.moments)) continue;
      in_runs(tile, s, [&](const Run& run) {
        writes.push_back(
            {t, run, kept.memory + tile.memory_offset[s] + (run.offset - tile.file_offset[s])});
        ++left[t];
      });
    }
  }
  make_writers(std::min<std::uint64_t>(kWriters, writes.size()))
      ->run_or_throw(writes.size(), [&](std::uint64_t i) {
        const auto& [tile, run, bytes] = writes[i];
        beat();
        make_sums(run, bytes);
        write_whole(snapshot_.files()[run.bucket].get(), run.offset, {bytes, run.bytes},
                    snapshot_.path(run.bucket));
        if (--left[tile] == 0) snapshot_.written(tile);
      });
}

// From the older generation that holds it.
void SnapshotFiles::gather(std::uint32_t t) {
  const Tile& tile = snapshot_.plan().tiles[t];
  const Snapshot::Tile& kept = snapshot_.tile(t);
  for (std::uint32_t s = 0; s < kSegments; ++s) {
    if (tile.bytes[s] == 0 || !(s == MILLPOND_SEGMENT_MAIN ? kept.main : kept.moments)) continue;
    in_runs(tile, s, [&](const Run& run) {
      beat();
      const std::string& path = kept.older->paths[tile.bucket];
      read_whole(kept.older->files[tile.bucket].get(), run.offset, {buffer_.get(), run.bytes},
                 path);
      check_sums(run, buffer_.get(), path);
      write_whole(snapshot_.files()[tile.bucket].get(), run.offset, {buffer_.get(), run.bytes},
                  snapshot_.path(tile.bucket));
      keep_to_rate(run.bytes);
    });
  }
}

// Moments that the tile does not have and its bucket's file has: zeros.
void SnapshotFiles::write_absent(std::uint32_t t) {
  const Tile& tile = snapshot_.plan().tiles[t];
  if (!writer_.manifest().buckets[tile.bucket].moments_present) return;
  for (const std::uint32_t s : {MILLPOND_SEGMENT_EXP_AVG, MILLPOND_SEGMENT_EXP_AVG_SQ}) {
    in_runs(tile, s, [&](const Run& run) {
      beat();
      std::byte* to = buffer_.get();
      for (std::uint64_t block = run.first_block; block < run.first_block + run.blocks; ++block) {
        const std::vector<std::byte> zeros = checkpoint::zero_block(
            writer_.manifest().storage[s],
            snapshot_.plan().elements_of_block(snapshot_.plan().buckets[tile.bucket], block));
        std::memcpy(to, zeros.data(), zeros.size());
        to += zeros.size();
      }
      make_sums(run, buffer_.get());
      write_whole(snapshot_.files()[tile.bucket].get(), run.offset, {buffer_.get(), run.bytes},
                  snapshot_.path(tile.bucket));
    });
  }
}

void SnapshotFiles::place(std::uint32_t bucket) {
  beat();
  const checkpoint::BucketGeometry& geometry = writer_.geometry(bucket);
  Fd& file = snapshot_.files()[bucket];
  if (geometry.sums != 0) {
    std::vector<std::uint64_t> sums;
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      const auto& of_segment = snapshot_.sums()[bucket][s];
      if (geometry.present[s]) sums.insert(sums.end(), of_segment.begin(), of_segment.end());
    }
    // A bucket without moments ends behind its mains.
    if (::ftruncate(file.get(), static_cast<off_t>(geometry.file_bytes)) != 0) {
      throw os_error("cut to its size", snapshot_.path(bucket), errno)
          .want(geometry.file_bytes, kNoValue);
    }
    const bool before = std::exchange(snapshot_.shared(), true);  // also where it fails half-way
    if (writer_.take_in(bucket, file.get(), sums)) {
      ++taken_in_;
      progress_.done += geometry.file_bytes;
    } else {
      snapshot_.shared() = before;
      copy(bucket);
      ++copied_;
    }
  }
  file = Fd();  // nothing can write there any more
}

void SnapshotFiles::copy(std::uint32_t bucket) {
  const Plan& plan = snapshot_.plan();
  const Bucket& which = plan.buckets[bucket];
  for (std::uint32_t t = which.first_tile; t < which.first_tile + which.tiles; ++t) {
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      if (!writer_.geometry(bucket).present[s]) continue;
      in_runs(plan.tiles[t], s, [&](const Run& run) {
        beat();
        const std::string& path = snapshot_.path(bucket);
        read_whole(snapshot_.files()[bucket].get(), run.offset, {buffer_.get(), run.bytes}, path);
        check_sums(run, buffer_.get(), path);
        writer_.write(bucket, s, run.first_block, {buffer_.get(), run.bytes});
        progress_.done += run.bytes;
        keep_to_rate(run.bytes);
      });
    }
  }
}

void SnapshotFiles::keep_to_rate(std::uint64_t bytes) {
  if (bytes_per_s_ == 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (rated_bytes_ == 0) rate_begin_ = now;
  rated_bytes_ += bytes;
  const std::chrono::duration<double> due(static_cast<double>(rated_bytes_) /
                                          static_cast<double>(bytes_per_s_));
  // In small sleeps, so that a cancelled save ends soon.
  while (std::chrono::steady_clock::now() - rate_begin_ < due) {
    beat();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace millpond::plugin
