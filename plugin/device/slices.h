// How a tile's work is divided among threads: slices of one block each, and in a slice the runs of
// shards. Pure; nothing is stored, so nothing is allocated.
#ifndef MILLPOND_PLUGIN_DEVICE_SLICES_H_
#define MILLPOND_PLUGIN_DEVICE_SLICES_H_

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/adam.h"
#include "plugin/pipeline/pipeline.h"

namespace millpond::plugin {

// Elements [begin, end) of a tile, inside one block; both ends are multiples of 256.
struct Slice {
  std::uint64_t begin = 0, end = 0;
};

class Slices {
 public:
  // Enough slices for every thread to find some, none larger than `most` elements.
  Slices(const TileView& tile, std::uint32_t threads, std::uint64_t most = 65'536)
      : elements_(tile.tile->elements), block_(tile.plan->options.block_elements) {
    const std::uint64_t fair = kernels::round_up(elements_ / (4ULL * threads) + 1, kSmallest);
    size_ = std::min({fair, most, block_});
    per_block_ = (block_ + size_ - 1) / size_;
    const std::uint64_t whole = elements_ / block_;
    count_ = whole * per_block_ + (elements_ % block_ + size_ - 1) / size_;
  }
  std::uint64_t count() const { return count_; }
  Slice operator[](std::uint64_t i) const {
    const std::uint64_t block_begin = i / per_block_ * block_;
    const std::uint64_t begin = block_begin + i % per_block_ * size_;
    return {begin, std::min({begin + size_, block_begin + block_, elements_})};
  }

 private:
  static constexpr std::uint64_t kSmallest = 4096;
  std::uint64_t elements_, block_;
  std::uint64_t size_ = 0, per_block_ = 0, count_ = 0;
};

// A run of one shard inside one slice.
struct PieceRun {
  const Piece* piece = nullptr;
  std::uint64_t tile_begin = 0;   // first element, in the tile
  std::uint64_t shard_begin = 0;  // first element, in the shard
  std::uint64_t count = 0;
};

template <typename Function>
void each_run(const TileView& tile, Slice slice, Function&& function) {
  const std::span<const Piece> pieces = tile.plan->pieces_of(*tile.tile);
  auto piece = std::partition_point(pieces.begin(), pieces.end(), [&](const Piece& p) {
    return p.tile_begin + p.count <= slice.begin;
  });
  for (; piece != pieces.end() && piece->tile_begin < slice.end; ++piece) {
    const std::uint64_t begin = std::max(piece->tile_begin, slice.begin);
    const std::uint64_t end = std::min(piece->tile_begin + piece->count, slice.end);
    if (begin >= end) continue;
    function(
        PieceRun{&*piece, begin, piece->shard_begin + (begin - piece->tile_begin), end - begin});
  }
}

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_DEVICE_SLICES_H_
