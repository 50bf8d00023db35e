#include "plugin/pipeline/integrity.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>

#include "checkpoint/block_sum.h"
#include "millpond/base.h"
#include "millpond/error.hpp"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kZeroBytes = 1 << 20;  // by one body of the pool

// The existing segments of a tile, so that one index names a block of any of them.
struct BlockList {
  BlockList(const StateCore& state, std::uint32_t tile_index)
      : tile(state.plan.tiles[tile_index]), index(tile_index) {
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      if (state.exists(tile_index, s)) segments[count++] = s;
    }
  }
  std::uint64_t blocks() const { return count * tile.blocks; }
  std::uint32_t segment(std::uint64_t i) const { return segments[i / tile.blocks]; }
  std::uint64_t block(std::uint64_t i) const { return i % tile.blocks; }  // in the tile
  std::uint64_t offset(const StateCore& state, std::uint64_t i) const {   // in the segment's run
    return block(i) * kernels::block_bytes(state.plan.options.storage[segment(i)],
                                           state.plan.options.block_elements);
  }
  std::uint64_t sum(const StateCore& state, const std::byte* memory, std::uint64_t i) const {
    const std::uint32_t s = segment(i);
    return checkpoint::block_sum(state.seed, tile.bucket, s, tile.first_block + block(i),
                                 memory + tile.memory_offset[s] + offset(state, i),
                                 state.block_bytes(index, s, block(i)));
  }

  const Tile& tile;
  std::uint32_t index;
  std::array<std::uint32_t, kSegments> segments{};
  std::uint64_t count = 0;
};

}  // namespace

void make_sums(StateCore& state, std::uint32_t tile, const std::byte* memory, ThreadPool& pool) {
  const BlockList list(state, tile);
  auto& sums = state.sums[list.tile.bucket];
  pool.run(list.blocks(), [&](std::uint64_t i) {
    sums[list.segment(i)][list.tile.first_block + list.block(i)] = list.sum(state, memory, i);
  });
}

void verify_sums(const StateCore& state, std::uint32_t tile, const std::byte* memory,
                 ThreadPool& pool) {
  const BlockList list(state, tile);
  const auto& sums = state.sums[list.tile.bucket];
  std::atomic<std::uint64_t> first_bad{UINT64_MAX};
  pool.run(list.blocks(), [&](std::uint64_t i) {
    const std::uint64_t wanted = sums[list.segment(i)][list.tile.first_block + list.block(i)];
    if (list.sum(state, memory, i) == wanted) return;
    std::uint64_t seen = first_bad.load(std::memory_order_relaxed);
    while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
    }
  });
  const std::uint64_t bad = first_bad.load();
  if (bad == UINT64_MAX) return;
  const std::uint32_t s = list.segment(bad);
  const std::uint64_t block = list.tile.first_block + list.block(bad);
  throw Error(MILLPOND_E_CORRUPT, "verify",
              "the checksum of block " + std::to_string(block) + " of segment " +
                  std::to_string(s) + " of bucket " + std::to_string(list.tile.bucket) +
                  " is wrong: what was read is not what was written there last")
      .path(state.tiles[tile].home->paths[list.tile.bucket])
      .at(list.tile.file_offset[s] + list.offset(state, bad))
      .want(sums[s][block], list.sum(state, memory, bad))
      .remedy("Load a checkpoint, and check the drive and the memory of this node.");
}

void zero_absent(const StateCore& state, std::uint32_t tile, std::byte* memory, bool everything,
                 ThreadPool& pool) {
  const Tile& t = state.plan.tiles[tile];
  for (std::uint32_t s = 0; s < kSegments; ++s) {
    if (t.bytes[s] == 0 || (!everything && state.exists(tile, s))) continue;
    std::byte* const begin = memory + t.memory_offset[s];
    const std::uint64_t bytes = t.bytes[s];
    pool.run((bytes + kZeroBytes - 1) / kZeroBytes, [&](std::uint64_t i) {
      std::memset(begin + i * kZeroBytes, 0, std::min(kZeroBytes, bytes - i * kZeroBytes));
    });
  }
}

}  // namespace millpond::plugin
