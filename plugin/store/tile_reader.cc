#include "plugin/store/tile_reader.h"

#include <new>
#include <string>

#include "checkpoint/block_sum.h"
#include "checkpoint/manifest.h"
#include "millpond/error.hpp"
#include "plugin/device/stored_run.h"
#include "plugin/io/whole_transfer.h"

namespace millpond::plugin {
namespace {

std::string file_of(const StreamedState& state, std::uint32_t bucket) {
  return state.uid() + " scratch " + checkpoint::bucket_file_name(bucket);
}

}  // namespace

TileReader::TileReader(StreamedState& state)
    : state_(state),
      memory_(static_cast<std::byte*>(std::aligned_alloc(
          kernels::kPageBytes, kernels::round_up(state.plan().max_tile_bytes, kernels::kPageBytes) +
                                   kernels::kPageBytes))) {
  if (memory_ == nullptr) throw std::bad_alloc();
}

const std::byte* TileReader::load(std::uint32_t tile) {
  if (tile == tile_) return memory_.get();
  tile_ = UINT32_MAX;
  const Tile& what = state_.plan().tiles[tile];
  const bool moments = state_.moments_present(tile);
  for (std::uint32_t s = 0; s < kSegments; ++s) {
    if (what.bytes[s] != 0 && (s == MILLPOND_SEGMENT_MAIN || moments)) read_segment(tile, s);
  }
  tile_ = tile;
  return memory_.get();
}

kernels::StoredRun TileReader::run_at(std::uint32_t segment, std::uint64_t element) const {
  return stored_run(state_.plan(), state_.plan().tiles[tile_], memory_.get(), segment, element);
}

void TileReader::read_segment(std::uint32_t index, std::uint32_t segment) {
  const Tile& tile = state_.plan().tiles[index];
  const Plan& plan = state_.plan();
  std::byte* const memory = memory_.get() + tile.memory_offset[segment];
  const std::uint64_t bytes = tile.bytes[segment];
  read_whole(state_.fd_of(index), tile.file_offset[segment], {memory, bytes},
             file_of(state_, tile.bucket));
  const auto sums = state_.sums(tile.bucket, segment);
  const std::uint64_t seed = checkpoint::uid_seed(state_.uid());
  const kernels::Storage storage = plan.options.storage[segment];
  std::uint64_t at = 0;
  for (std::uint64_t b = 0; b < tile.blocks; ++b) {
    const std::uint64_t block = tile.first_block + b;
    const std::uint64_t size =
        kernels::block_bytes(storage, plan.elements_of_block(plan.buckets[tile.bucket], block));
    const std::uint64_t sum =
        checkpoint::block_sum(seed, tile.bucket, segment, block, memory + at, size);
    if (sum != sums[block]) {
      throw Error(MILLPOND_E_CORRUPT, "verify",
                  "block " + std::to_string(block) + " of segment " + std::to_string(segment) +
                      " is not what was written: its checksum differs")
          .path(file_of(state_, tile.bucket))
          .at(tile.file_offset[segment] + at)
          .want(sums[block], sum)
          .remedy("Load a checkpoint; check the drive");
    }
    at += size;
  }
}

}  // namespace millpond::plugin
