#include "plugin/layout/plan.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "millpond/base.h"
#include "millpond/error.hpp"

namespace millpond::plugin {
namespace {

using kernels::block_bytes;
using kernels::kGroupElements;
using kernels::kPageBytes;
using kernels::run_bytes;

// Elements and bytes stay below 2^63, so that offsets fit off_t and sums of two never wrap. The
// largest element of a segment has 4 bytes and a block's padding is below its payload, hence 2^58
// elements in a store are safe in every product below.
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 58;
constexpr std::uint64_t kMostCount = std::numeric_limits<std::uint32_t>::max() - 1;

Error overflow(const std::string& what, std::uint64_t most, std::uint64_t got) {
  return Error(MILLPOND_E_ARGUMENT, "plan the layout", what)
      .field("bind_args.profile.shards")
      .want(most, got)
      .remedy("Check the shards' ranges, or divide the parameters among more stores.");
}

void check_options(const LayoutOptions& options) {
  const auto refuse = [](const char* field, const char* rule, std::uint64_t got) {
    return Error(MILLPOND_E_OPTION, "plan the layout", rule)
        .field(field)
        .want(kNoValue, got)
        .remedy("Leave the option out to get the default.");
  };
  if (options.block_elements < kPageBytes || options.block_elements % kPageBytes != 0 ||
      options.block_elements > kMostElements) {
    throw refuse("options.block_elements", "must be a multiple of 4096 and at least that",
                 options.block_elements);
  }
  if (options.tile_elements < options.block_elements ||
      options.tile_elements % options.block_elements != 0 ||
      options.tile_elements > kMostElements) {
    throw refuse("options.tile_elements", "must be a multiple of block_elements",
                 options.tile_elements);
  }
  if (options.bucket_elements == 0) {
    throw refuse("options.bucket_elements", "must be at least 1", options.bucket_elements);
  }
}

// Cuts shards into buckets and gives every shard its place.
void place_shards(std::span<const ShardShape> shards, Plan* plan) {
  const ShardShape* previous = nullptr;  // the last one with elements
  bool open = false;                     // the last bucket takes more shards
  std::uint64_t end = 0;                 // of the bucket's last shard, not rounded
  std::uint64_t padded = 0;              // elements of all buckets, with gaps
  std::vector<std::uint32_t> waiting;    // empty shards before the next bucket
  plan->places.resize(shards.size());
  for (std::uint32_t i = 0; i < shards.size(); ++i) {
    const ShardShape& shard = shards[i];
    if (shard.numel == 0) {
      // An empty shard never opens or cuts a bucket: a file without bytes would help nobody.
      if (open) {
        plan->places[i] = {static_cast<std::uint32_t>(plan->buckets.size() - 1),
                           kernels::round_up(end, kGroupElements)};
        plan->buckets.back().shards.push_back(i);
      } else {
        waiting.push_back(i);
      }
      continue;
    }
    if (shard.numel > kMostElements || padded + shard.numel > kMostElements) {
      throw overflow("the shards have too many elements", kMostElements, shard.numel);
    }
    if (open && (shard.host_bucket != previous->host_bucket ||
                 shard.moments_only != previous->moments_only)) {
      open = false;
    }
    if (!open) {
      Bucket bucket;
      bucket.moments_only = shard.moments_only;
      bucket.first_segment = shard.moments_only ? 1 : 0;
      bucket.shards = std::exchange(waiting, {});
      const auto index = static_cast<std::uint32_t>(plan->buckets.size());
      for (const std::uint32_t empty : bucket.shards) plan->places[empty] = {index, 0};
      plan->buckets.push_back(std::move(bucket));
      open = true;
      end = 0;
    }
    Bucket& bucket = plan->buckets.back();
    const std::uint64_t offset = kernels::round_up(end, kGroupElements);
    plan->places[i] = {static_cast<std::uint32_t>(plan->buckets.size() - 1), offset};
    bucket.shards.push_back(i);
    end = offset + shard.numel;
    padded += kernels::round_up(end, kGroupElements) - bucket.elements;
    bucket.elements = kernels::round_up(end, kGroupElements);
    plan->elements += shard.numel;
    previous = &shard;
    if (bucket.elements >= plan->options.bucket_elements) open = false;
  }
  if (!plan->buckets.empty()) {
    Bucket& last = plan->buckets.back();
    const auto index = static_cast<std::uint32_t>(plan->buckets.size() - 1);
    for (const std::uint32_t empty : waiting) {
      plan->places[empty] = {index, last.elements};
      last.shards.push_back(empty);
    }
  }
}

void size_segments(Plan* plan) {
  const LayoutOptions& options = plan->options;
  for (Bucket& bucket : plan->buckets) {
    bucket.blocks = (bucket.elements + options.block_elements - 1) / options.block_elements;
    for (std::uint32_t s = bucket.first_segment; s < kSegments; ++s) {
      bucket.segment_offset[s] = bucket.file_bytes;
      bucket.segment_bytes[s] =
          run_bytes(options.storage[s], bucket.elements, options.block_elements);
      bucket.file_bytes += bucket.segment_bytes[s];
    }
    plan->state_bytes += bucket.file_bytes;
  }
}

// The pieces of the tiles of one bucket. Shards and tiles both ascend, so one sweep is enough.
void cut_pieces(std::span<const ShardShape> shards, const Bucket& bucket, Plan* plan) {
  std::size_t next = 0;  // into bucket.shards: the first that may reach into the tile
  for (std::uint32_t t = bucket.first_tile; t < bucket.first_tile + bucket.tiles; ++t) {
    Tile& tile = plan->tiles[t];
    const std::uint64_t tile_end = tile.begin + tile.elements;
    tile.first_piece = static_cast<std::uint32_t>(plan->pieces.size());
    for (std::size_t i = next; i < bucket.shards.size(); ++i) {
      const std::uint32_t shard = bucket.shards[i];
      const std::uint64_t shard_begin = plan->places[shard].offset;
      const std::uint64_t shard_end = shard_begin + shards[shard].numel;
      if (shard_begin >= tile_end) break;
      if (shard_end <= tile_end && i == next) ++next;
      if (shards[shard].numel == 0) continue;
      const std::uint64_t begin = std::max(shard_begin, tile.begin);
      const std::uint64_t end = std::min(shard_end, tile_end);
      if (begin < end) {
        plan->pieces.push_back({shard, begin - shard_begin, begin - tile.begin, end - begin});
      }
    }
    if (plan->pieces.size() > kMostCount) {
      throw overflow("the tiles are too small for so many elements", kMostCount,
                     plan->pieces.size());
    }
    tile.pieces = static_cast<std::uint32_t>(plan->pieces.size()) - tile.first_piece;
  }
}

void cut_tiles(Plan* plan) {
  const LayoutOptions& options = plan->options;
  std::uint64_t count = 0;
  for (const Bucket& bucket : plan->buckets) {
    count += (bucket.elements + options.tile_elements - 1) / options.tile_elements;
  }
  if (count > kMostCount) {
    throw overflow("the tiles are too small for so many elements", kMostCount, count);
  }
  plan->tiles.reserve(count);
  for (std::uint32_t b = 0; b < plan->buckets.size(); ++b) {
    Bucket& bucket = plan->buckets[b];
    bucket.first_tile = static_cast<std::uint32_t>(plan->tiles.size());
    for (std::uint64_t begin = 0; begin < bucket.elements; begin += options.tile_elements) {
      Tile tile;
      tile.bucket = b;
      tile.begin = begin;
      tile.elements = std::min(options.tile_elements, bucket.elements - begin);
      tile.first_block = begin / options.block_elements;
      tile.blocks = (tile.elements + options.block_elements - 1) / options.block_elements;
      for (std::uint32_t s = bucket.first_segment; s < kSegments; ++s) {
        tile.file_offset[s] =
            bucket.segment_offset[s] +
            tile.first_block * block_bytes(options.storage[s], options.block_elements);
        tile.bytes[s] = run_bytes(options.storage[s], tile.elements, options.block_elements);
        tile.memory_offset[s] = tile.total_bytes;
        tile.total_bytes += tile.bytes[s];
      }
      plan->max_tile_bytes = std::max(plan->max_tile_bytes, tile.total_bytes);
      plan->tiles.push_back(tile);
    }
    bucket.tiles = static_cast<std::uint32_t>(plan->tiles.size()) - bucket.first_tile;
  }
}

}  // namespace

std::uint64_t Plan::elements_of_block(const Bucket& bucket, std::uint64_t block) const {
  return std::min(options.block_elements, bucket.elements - block * options.block_elements);
}

Plan make_plan(std::span<const ShardShape> shards, const LayoutOptions& options) {
  check_options(options);
  if (shards.size() > kMostCount) {
    throw overflow("there are too many shards", kMostCount, shards.size());
  }
  Plan plan;
  plan.options = options;
  place_shards(shards, &plan);
  size_segments(&plan);
  cut_tiles(&plan);
  for (const Bucket& bucket : plan.buckets) cut_pieces(shards, bucket, &plan);
  return plan;
}

}  // namespace millpond::plugin
