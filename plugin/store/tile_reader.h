// Reads tiles of a flushed state from its files, one at a time, without the host tier: for taking
// state over into another layout, and for saves while the tier is given back. Sums are checked.
#ifndef MILLPOND_PLUGIN_STORE_TILE_READER_H_
#define MILLPOND_PLUGIN_STORE_TILE_READER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "kernels/adam.h"
#include "plugin/pipeline/pipeline.h"

namespace millpond::plugin {

class TileReader {
 public:
  // One aligned buffer of the plan's largest tile. The state must stay flushed while this lives.
  explicit TileReader(StreamedState& state);

  // The tile's segments at memory_offset, main only where it has no moments. Kept until the next
  // load; loading the same tile again costs nothing. Throws Error(E_IO, E_CORRUPT) with file,
  // offset, wanted, got.
  const std::byte* load(std::uint32_t tile);

  // The stored run that holds element `element` of the loaded tile (a multiple of 256), in its
  // block.
  kernels::StoredRun run_at(std::uint32_t segment, std::uint64_t element) const;
  std::uint32_t tile() const { return tile_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  void read_segment(std::uint32_t tile, std::uint32_t segment);

  StreamedState& state_;
  std::unique_ptr<std::byte[], Free> memory_;
  std::uint32_t tile_ = UINT32_MAX;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_TILE_READER_H_
