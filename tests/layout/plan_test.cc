#include "plugin/layout/plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "millpond/base.h"
#include "millpond/error.hpp"

namespace millpond::plugin {
namespace {

using kernels::Storage;

// Bytes of one block by the format's words, without the functions under test: payload, a 4-byte
// scale for every 256 elements of scaled formats, padded to whole pages.
std::uint64_t oracle_block_bytes(Storage storage, std::uint64_t elements) {
  std::uint64_t bytes = 0;
  switch (storage) {
    case Storage::kFp32:
      bytes = elements * 4;
      break;
    case Storage::kBf16:
      bytes = elements * 2;
      break;
    case Storage::kFp16Scaled:
      bytes = elements * 2 + elements / 256 * 4;
      break;
    case Storage::kFp8E4m3Scaled:
    case Storage::kFp8E5m2Scaled:
      bytes = elements + elements / 256 * 4;
      break;
  }
  while (bytes % 4096 != 0) bytes += 4;
  return bytes;
}

// Where every element of every shard must be, found by walking the shards in steps of 256.
struct Oracle {
  struct Group {  // 256 elements, or the rest of a shard
    std::uint32_t shard;
    std::uint64_t shard_begin, count;
  };
  struct BucketWalk {
    bool moments_only;
    std::vector<Group> groups;  // the i-th begins at element 256 * i of the bucket
  };
  std::vector<BucketWalk> buckets;

  Oracle(const std::vector<ShardShape>& shards, const LayoutOptions& options) {
    bool cut = true;
    const ShardShape* before = nullptr;
    for (std::uint32_t s = 0; s < shards.size(); ++s) {
      if (shards[s].numel == 0) continue;
      if (before != nullptr && (before->host_bucket != shards[s].host_bucket ||
                                before->moments_only != shards[s].moments_only)) {
        cut = true;
      }
      if (cut) buckets.push_back({shards[s].moments_only, {}});
      cut = false;
      for (std::uint64_t at = 0; at < shards[s].numel; at += 256) {
        const std::uint64_t left = shards[s].numel - at;
        buckets.back().groups.push_back({s, at, left < 256 ? left : 256});
      }
      if (buckets.back().groups.size() * 256 >= options.bucket_elements) cut = true;
      before = &shards[s];
    }
  }
};

void expect_matches_oracle(const std::vector<ShardShape>& shards, const LayoutOptions& options) {
  const Plan plan = make_plan(shards, options);
  const Oracle oracle(shards, options);
  ASSERT_EQ(plan.buckets.size(), oracle.buckets.size());
  ASSERT_EQ(plan.places.size(), shards.size());

  std::uint64_t elements = 0;
  for (const ShardShape& shard : shards) elements += shard.numel;
  EXPECT_EQ(plan.elements, elements);

  std::uint32_t tile_index = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t largest = 0;
  std::multiset<std::uint32_t> listed;
  for (std::uint32_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    const auto& walk = oracle.buckets[b];
    for (const std::uint32_t s : bucket.shards) {
      listed.insert(s);
      EXPECT_EQ(plan.places[s].bucket, b);
    }
    EXPECT_EQ(bucket.moments_only, walk.moments_only);
    ASSERT_EQ(bucket.first_segment, walk.moments_only ? 1u : 0u);
    ASSERT_EQ(bucket.elements, walk.groups.size() * 256);
    EXPECT_EQ(bucket.first_tile, tile_index);

    // Lay the blocks of each segment one after another.
    std::uint64_t at = 0;
    std::vector<std::vector<std::uint64_t>> block_offset(kSegments);
    std::vector<std::vector<std::uint64_t>> block_size(kSegments);
    for (std::uint32_t s = bucket.first_segment; s < kSegments; ++s) {
      EXPECT_EQ(bucket.segment_offset[s], at);
      EXPECT_EQ(bucket.segment_offset[s] % 4096, 0u);
      for (std::uint64_t e = 0; e < bucket.elements; e += options.block_elements) {
        const std::uint64_t in_block = std::min(options.block_elements, bucket.elements - e);
        EXPECT_EQ(plan.elements_of_block(bucket, e / options.block_elements), in_block);
        block_offset[s].push_back(at);
        block_size[s].push_back(oracle_block_bytes(options.storage[s], in_block));
        at += block_size[s].back();
      }
      EXPECT_EQ(bucket.blocks, block_offset[s].size());
      EXPECT_EQ(bucket.segment_bytes[s], at - bucket.segment_offset[s]);
    }
    EXPECT_EQ(bucket.file_bytes, at);
    state_bytes += at;

    // Tiles follow each other; their pieces name every element of every shard once, in order.
    std::uint64_t covered = 0;
    std::size_t group = 0;
    for (std::uint32_t t = 0; t < bucket.tiles; ++t, ++tile_index) {
      ASSERT_LT(tile_index, plan.tiles.size());
      const Tile& tile = plan.tiles[tile_index];
      EXPECT_EQ(tile.bucket, b);
      ASSERT_EQ(tile.begin, covered);
      ASSERT_EQ(tile.begin % options.tile_elements, 0u);
      covered += tile.elements;
      ASSERT_TRUE(tile.elements == options.tile_elements || covered == bucket.elements);
      ASSERT_GT(tile.elements, 0u);
      EXPECT_EQ(tile.first_block * options.block_elements, tile.begin);
      std::uint64_t memory = 0;
      for (std::uint32_t s = 0; s < kSegments; ++s) {
        if (s < bucket.first_segment) {
          EXPECT_EQ(tile.bytes[s], 0u);
          continue;
        }
        EXPECT_EQ(tile.file_offset[s], block_offset[s][tile.first_block]);
        EXPECT_EQ(tile.memory_offset[s], memory);
        std::uint64_t bytes = 0;
        for (std::uint64_t k = 0; k < tile.blocks; ++k) {
          bytes += block_size[s][tile.first_block + k];
        }
        EXPECT_EQ(tile.bytes[s], bytes);
        memory += bytes;
      }
      EXPECT_EQ(tile.total_bytes, memory);
      largest = std::max(largest, memory);
      std::uint64_t last_end = 0;
      for (const Piece& piece : plan.pieces_of(tile)) {
        ASSERT_EQ(piece.tile_begin % 256, 0u);
        ASSERT_EQ(piece.shard_begin % 256, 0u);
        ASSERT_GE(piece.tile_begin, last_end);
        last_end = piece.tile_begin + piece.count;
        ASSERT_LE(last_end, tile.elements);
        for (std::uint64_t e = 0; e < piece.count; e += 256, ++group) {
          ASSERT_LT(group, walk.groups.size());
          const auto& wanted = walk.groups[group];
          ASSERT_EQ(wanted.shard, piece.shard);
          ASSERT_EQ(wanted.shard_begin, piece.shard_begin + e);
          ASSERT_EQ(wanted.count, std::min<std::uint64_t>(256, piece.count - e));
          ASSERT_EQ(group * 256, tile.begin + piece.tile_begin + e);
          if (wanted.shard_begin == 0) {
            EXPECT_EQ(plan.places[piece.shard].offset, group * 256);
          }
        }
      }
    }
    EXPECT_EQ(covered, bucket.elements);
    EXPECT_EQ(group, walk.groups.size());
  }
  EXPECT_EQ(tile_index, plan.tiles.size());
  EXPECT_EQ(plan.state_bytes, state_bytes);
  EXPECT_EQ(plan.max_tile_bytes, largest);
  if (!plan.buckets.empty()) {
    EXPECT_EQ(listed.size(), shards.size());  // each shard is listed once, empty ones too
    for (std::uint32_t s = 0; s < shards.size(); ++s) EXPECT_EQ(listed.count(s), 1u);
  }
}

LayoutOptions small(std::uint64_t tile, std::uint64_t block, std::uint64_t bucket) {
  LayoutOptions options;
  options.tile_elements = tile;
  options.block_elements = block;
  options.bucket_elements = bucket;
  return options;
}

TEST(Plan, B03_random_layouts_match_a_walk_over_every_element) {
  std::mt19937_64 random(7);
  const Storage all[] = {Storage::kFp32, Storage::kBf16, Storage::kFp16Scaled,
                         Storage::kFp8E4m3Scaled, Storage::kFp8E5m2Scaled};
  for (int round = 0; round < 400; ++round) {
    const std::uint64_t block = 4096 * (1 + random() % 3);
    LayoutOptions options =
        small(block * (1 + random() % 3), block, 1 + random() % (4 * 4096 * (1 + random() % 8)));
    options.storage = {Storage::kFp32, all[random() % 5], all[random() % 5]};
    std::vector<ShardShape> shards(random() % 40);
    std::uint64_t host_bucket = 0;
    for (ShardShape& shard : shards) {
      const std::uint64_t edges[] = {0,
                                     1,
                                     255,
                                     256,
                                     257,
                                     options.tile_elements - 1,
                                     options.tile_elements,
                                     options.tile_elements + 1,
                                     10 * options.tile_elements,
                                     random() % 30000};
      shard.numel = edges[random() % 10];
      if (random() % 6 == 0) ++host_bucket;
      shard.host_bucket = host_bucket;
      shard.moments_only = random() % 5 == 0;
    }
    SCOPED_TRACE(round);
    expect_matches_oracle(shards, options);
    if (HasFatalFailure()) return;
  }
}

TEST(Plan, bytes_of_a_shard_do_not_depend_on_its_neighbours) {
  // The offset in the bucket is a multiple of 256 and gaps are whole groups at most.
  const Plan plan =
      make_plan(std::vector<ShardShape>{{1, 0, false}, {300, 0, false}, {5, 0, false}},
                small(4096, 4096, 1000000));
  EXPECT_EQ(plan.places[0].offset, 0u);
  EXPECT_EQ(plan.places[1].offset, 256u);
  EXPECT_EQ(plan.places[2].offset, 768u);
  EXPECT_EQ(plan.buckets[0].elements, 1024u);
}

TEST(Plan, B41_empty_shards_have_places_and_cost_nothing) {
  const LayoutOptions options = small(4096, 4096, 4096);
  // Everywhere: first, in a row, where kinds and host buckets change, after a full bucket, last.
  const Plan plan = make_plan(std::vector<ShardShape>{{0, 9, true},
                                                      {0, 0, false},
                                                      {4096, 0, false},
                                                      {0, 0, true},
                                                      {10, 0, false},
                                                      {0, 5, true},
                                                      {10, 0, false},
                                                      {0, 1, false}},
                              options);
  ASSERT_EQ(plan.buckets.size(), 2u);
  EXPECT_EQ(plan.elements, 4116u);
  EXPECT_EQ(plan.places[0].bucket, 0u);
  EXPECT_EQ(plan.places[0].offset, 0u);
  EXPECT_EQ(plan.places[3].bucket, 1u);  // the place where the next shard would begin
  EXPECT_EQ(plan.places[3].offset, 0u);
  EXPECT_EQ(plan.places[5].bucket, 1u);
  EXPECT_EQ(plan.places[5].offset, 256u);
  EXPECT_EQ(plan.places[7].offset, 512u);
  for (const Piece& piece : plan.pieces) EXPECT_GT(piece.count, 0u);

  const Plan none = make_plan(std::vector<ShardShape>{{0, 0, false}, {0, 1, true}}, options);
  EXPECT_TRUE(none.buckets.empty());
  EXPECT_TRUE(none.tiles.empty());
  EXPECT_EQ(none.places.size(), 2u);
  EXPECT_EQ(none.state_bytes, 0u);
  EXPECT_TRUE(make_plan({}, options).buckets.empty());
}

TEST(Plan, a_shard_beyond_the_bucket_limit_stays_whole) {
  const Plan plan =
      make_plan(std::vector<ShardShape>{{100, 0, false}, {50000, 0, false}, {100, 0, false}},
                small(4096, 4096, 1000));
  ASSERT_EQ(plan.buckets.size(), 2u);
  EXPECT_EQ(plan.places[0].bucket, 0u);
  EXPECT_EQ(plan.places[1].bucket, 0u);  // the limit was not reached before it
  EXPECT_EQ(plan.places[2].bucket, 1u);
}

TEST(Plan, offsets_beyond_two_and_four_gibi_elements) {
  const std::uint64_t big = (std::uint64_t{1} << 32) + 12345;  // 48 GiB of state in one shard
  LayoutOptions options;
  options.tile_elements = 1 << 24;
  options.block_elements = 1 << 18;
  const Plan plan =
      make_plan(std::vector<ShardShape>{{100, 0, false}, {big, 0, false}, {7, 0, false}}, options);
  ASSERT_EQ(plan.buckets.size(), 2u);  // cut after the shard that reached 200 M
  const Bucket& bucket = plan.buckets[0];
  EXPECT_EQ(plan.places[1].offset, 256u);
  EXPECT_EQ(plan.places[2].bucket, 1u);
  const std::uint64_t end = 256 + big;
  const std::uint64_t padded = (end + 255) / 256 * 256;
  EXPECT_EQ(bucket.segment_offset[1],
            padded / (1 << 18) * (1 << 20) + (padded % (1 << 18) * 4 + 4095) / 4096 * 4096);
  std::uint64_t next = 0;
  bool beyond_2 = false;
  bool beyond_4 = false;
  for (const Piece& piece : plan.pieces) {
    if (piece.shard != 1) continue;
    ASSERT_EQ(piece.shard_begin, next);
    next += piece.count;
    beyond_2 = beyond_2 || piece.shard_begin > (std::uint64_t{1} << 31);
    beyond_4 = beyond_4 || piece.shard_begin + piece.count > (std::uint64_t{1} << 32);
  }
  EXPECT_EQ(next, big);
  EXPECT_TRUE(beyond_2 && beyond_4);
  const Tile& last = plan.tiles[bucket.first_tile + bucket.tiles - 1];
  EXPECT_EQ(last.begin, padded / (1 << 24) * (1 << 24));
  EXPECT_EQ(last.file_offset[2] + last.bytes[2], bucket.file_bytes);
  EXPECT_GT(last.file_offset[1], std::uint64_t{1} << 34);
}

TEST(Plan, sizes_that_overflow_are_refused) {
  const LayoutOptions options = small(4096, 4096, 4096);
  const std::vector<std::vector<ShardShape>> cases = {
      {{UINT64_MAX, 0, false}},
      {{std::uint64_t{1} << 63, 0, false}},
      {{std::uint64_t{1} << 57, 0, false}, {(std::uint64_t{1} << 58) - 1, 1, false}},
      {{std::uint64_t{1} << 50, 0, false}},  // 2^38 tiles of 4096 elements
  };
  for (const auto& shards : cases) {
    try {
      make_plan(shards, options);
      FAIL() << "accepted " << shards[0].numel;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), MILLPOND_E_ARGUMENT) << error.what();
    }
  }
}

TEST(Plan, options_that_break_the_rules_are_refused) {
  const std::vector<LayoutOptions> cases = {small(4096, 0, 1),    small(4096, 2048, 1),
                                            small(8192, 5000, 1), small(4096, 8192, 1),
                                            small(6144, 4096, 1), small(4096, 4096, 0)};
  for (const LayoutOptions& options : cases) {
    try {
      make_plan({}, options);
      FAIL() << options.tile_elements << " " << options.block_elements;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), MILLPOND_E_OPTION) << error.what();
      EXPECT_NE(error.field_name().find("options."), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace millpond::plugin
