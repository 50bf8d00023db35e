// Where a tile's stored elements are in its memory.
#ifndef MILLPOND_PLUGIN_DEVICE_STORED_RUN_H_
#define MILLPOND_PLUGIN_DEVICE_STORED_RUN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/adam.h"
#include "plugin/pipeline/pipeline.h"

namespace millpond::plugin {

// The stored elements of a segment from element `begin` of the tile (a multiple of 256) on, to the
// end of its block. `memory` is the tile's. An absent segment has no block.
inline kernels::StoredRun stored_run(const Plan& plan, const Tile& tile, std::byte* memory,
                                     std::uint32_t segment, std::uint64_t begin) {
  const kernels::Storage storage = plan.options.storage[segment];
  if (tile.bytes[segment] == 0) return {nullptr, 0, 0, storage};
  const std::uint64_t block_elements = plan.options.block_elements;
  const std::uint64_t block = begin / block_elements;
  std::byte* const start =
      memory + tile.memory_offset[segment] + block * kernels::block_bytes(storage, block_elements);
  const std::uint64_t here = std::min(block_elements, tile.elements - block * block_elements);
  return {start, here, begin % block_elements, storage};
}
inline kernels::StoredRun stored_run(const TileView& tile, std::uint32_t segment,
                                     std::uint64_t begin) {
  return stored_run(*tile.plan, *tile.tile, tile.memory, segment, begin);
}

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_DEVICE_STORED_RUN_H_
