// The layout of one store's state: shards -> buckets -> blocks -> tiles, and the pieces of shards
// in a tile. Pure: no I/O, no pointers. Depends only on the shards and three numbers, never on
// threads, engines or memory.
#ifndef MILLPOND_PLUGIN_LAYOUT_PLAN_H_
#define MILLPOND_PLUGIN_LAYOUT_PLAN_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/storage.h"

namespace millpond::plugin {

inline constexpr std::uint32_t kSegments = 3;  // main, exp_avg, exp_avg_sq: MILLPOND_SEGMENT_*

// What the layout needs of a shard.
struct ShardShape {
  std::uint64_t numel = 0;
  std::uint64_t host_bucket = 0;
  bool moments_only = false;
};

struct LayoutOptions {
  std::uint64_t bucket_elements = 200'000'000;
  std::uint64_t tile_elements = 1 << 20;   // multiple of block_elements
  std::uint64_t block_elements = 1 << 18;  // multiple of 4096
  std::array<kernels::Storage, kSegments> storage{kernels::Storage::kFp32, kernels::Storage::kFp32,
                                                  kernels::Storage::kFp32};
};

// A run of shards of one kind in one file, in shard order, cut where host_bucket or the kind
// changes, and after the shard that reaches bucket_elements.
struct Bucket {
  bool moments_only = false;
  std::uint32_t first_segment = 0;  // 1 where moments_only
  std::vector<std::uint32_t> shards;
  std::uint64_t elements = 0;  // with the gaps between shards; multiple of 256
  std::uint64_t blocks = 0;    // per segment
  std::array<std::uint64_t, kSegments> segment_offset{};  // bytes in the file
  std::array<std::uint64_t, kSegments> segment_bytes{};   // 0 for an absent segment
  std::uint64_t file_bytes = 0;
  std::uint32_t first_tile = 0;
  std::uint32_t tiles = 0;
};

// A run of one shard inside one tile.
struct Piece {
  std::uint32_t shard = 0;
  std::uint64_t shard_begin = 0;  // first element, in the shard; multiple of 256
  std::uint64_t tile_begin = 0;   // first element, in the tile; multiple of 256
  std::uint64_t count = 0;
};

// Whole blocks of one bucket, all its segments. In memory the segments follow each other at
// memory_offset.
struct Tile {
  std::uint32_t bucket = 0;
  std::uint64_t begin = 0;     // elements in the bucket; multiple of tile_elements
  std::uint64_t elements = 0;  // multiple of 256
  std::uint64_t first_block = 0;
  std::uint64_t blocks = 0;
  std::array<std::uint64_t, kSegments> file_offset{};
  std::array<std::uint64_t, kSegments> bytes{};          // whole pages; 0 for an absent segment
  std::array<std::uint64_t, kSegments> memory_offset{};  // in the tile's place
  std::uint64_t total_bytes = 0;
  std::uint32_t first_piece = 0;
  std::uint32_t pieces = 0;
};

struct ShardPlace {
  std::uint32_t bucket = 0;
  std::uint64_t offset = 0;  // elements in the bucket; multiple of 256
};

struct Plan {
  LayoutOptions options;
  std::vector<ShardPlace>
      places;  // by shard index; empty shards have a place too (offset of the next shard)
  std::vector<Bucket> buckets;
  std::vector<Tile> tiles;  // in file order, bucket after bucket
  std::vector<Piece> pieces;
  std::uint64_t elements = 0;        // of all shards, without gaps
  std::uint64_t state_bytes = 0;     // of all bucket files
  std::uint64_t max_tile_bytes = 0;  // a place in the host tier

  // Elements in block `block` (of the bucket's segments): block_elements, or fewer for the last
  // one.
  std::uint64_t elements_of_block(const Bucket& bucket, std::uint64_t block) const;
  std::span<const Piece> pieces_of(const Tile& tile) const {
    return {pieces.data() + tile.first_piece, tile.pieces};
  }
};

// Throws Error(MILLPOND_E_ARGUMENT) when a size overflows 63 bits. A store without elements has no
// buckets or tiles.
Plan make_plan(std::span<const ShardShape> shards, const LayoutOptions& options);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_LAYOUT_PLAN_H_
