// What the CUDA kernels are told of tiles, held against where the CPU finds the same elements. No
// device is needed: the kernels' way through the tables is walked here, group by group.
#include "plugin/device/cuda_tables.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/flat_run.h"
#include "plugin/device/stored_run.h"

namespace millpond::plugin {
namespace {

using kernels::CudaPiece;
using kernels::CudaSegment;
using kernels::CudaTile;
using kernels::kGroupElements;
using kernels::Storage;

struct Case {
  std::vector<ShardShape> shards;
  std::uint64_t tile_elements, block_elements;
};

const Case kCases[] = {
    {{{1}}, 4096, 4096},
    {{{8191}, {0}, {8192}, {8193}, {5}, {81'920}, {4096}, {0}}, 8192, 4096},
    {{{300, 0, true}, {70'000, 0, false}, {1, 0, true}, {99'999, 0, true}}, 16'384, 8192},
    {std::vector<ShardShape>(700, ShardShape{257}), 1 << 16, 1 << 14},
};

Plan plan_of(const Case& c, Storage moments) {
  LayoutOptions options;
  options.tile_elements = c.tile_elements;
  options.block_elements = c.block_elements;
  options.storage = {Storage::kFp32, moments, moments};
  return make_plan(c.shards, options);
}

// The last piece that begins at or before the group: what the kernel looks for.
const CudaPiece& piece_of(const CudaTile& tile, std::uint32_t group) {
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < tile.count; ++i) {
    if (tile.pieces[i].first_group <= group) found = i;
  }
  return tile.pieces[found];
}

// As the kernel computes it.
unsigned char* data_of(const CudaSegment& s, const CudaTile& tile, std::uint32_t group) {
  return s.data + group / tile.groups_per_block * s.block_bytes +
         group % tile.groups_per_block * kGroupElements * kernels::item_bytes(s.storage);
}
unsigned char* scales_of(const CudaSegment& s, const CudaTile& tile, std::uint32_t group) {
  if (!kernels::is_scaled(s.storage)) return nullptr;
  const std::uint32_t block = group / tile.groups_per_block;
  return s.data + block * s.block_bytes + (block == s.last_block ? s.last_scales : s.scales) +
         group % tile.groups_per_block * 4;
}

void check_tile(const Plan& plan, const Tile& tile, std::byte* memory,
                const std::vector<CudaPiece>& pieces) {
  const CudaTile told = cuda_tile(plan, tile, memory, pieces.data(), nullptr);
  ASSERT_EQ(told.groups * kGroupElements, tile.elements);
  std::uint64_t elements = 0;
  for (std::uint32_t group = 0; group < told.groups; ++group) {
    const CudaPiece& piece = piece_of(told, group);
    ASSERT_LE(piece.first_group, group);
    const std::uint64_t begin = (group - piece.first_group) * kGroupElements;
    ASSERT_LT(begin, piece.count) << "a group of no shard";
    const std::uint64_t count = std::min(piece.count - begin, kGroupElements);
    elements += count;
    // The layout says which shard has this element.
    const ShardPlace& place = plan.places[piece.shard];
    ASSERT_EQ(place.bucket, tile.bucket);
    ASSERT_EQ(place.offset + piece.shard_begin + begin, tile.begin + group * kGroupElements);
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      const CudaSegment& segment = told.segments[s];
      const kernels::FlatSegment wanted =
          kernels::flatten(stored_run(plan, tile, memory, s, group * kGroupElements));
      if (tile.bytes[s] == 0) {
        ASSERT_EQ(segment.data, nullptr);
        continue;
      }
      ASSERT_EQ(data_of(segment, told, group), wanted.data) << "segment " << s;
      ASSERT_EQ(scales_of(segment, told, group), wanted.scales) << "segment " << s;
      if (kernels::is_scaled(segment.storage)) continue;
      // The short cut for formats without scales: blocks follow each other without holes.
      ASSERT_EQ(segment.data + group * kGroupElements * kernels::item_bytes(segment.storage),
                wanted.data);
    }
  }
  std::uint64_t wanted = 0;
  for (const Piece& piece : plan.pieces_of(tile)) wanted += piece.count;
  EXPECT_EQ(elements, wanted);
}

TEST(CudaTables, lead_to_the_elements_that_the_cpu_finds) {
  for (const Storage moments : {Storage::kFp32, Storage::kBf16, Storage::kFp16Scaled,
                                Storage::kFp8E4m3Scaled, Storage::kFp8E5m2Scaled}) {
    for (const Case& c : kCases) {
      const Plan plan = plan_of(c, moments);
      const std::vector<CudaPiece> pieces = cuda_pieces(plan);
      ASSERT_EQ(pieces.size(), plan.pieces.size());
      std::vector<std::byte> memory(plan.max_tile_bytes);
      for (const Tile& tile : plan.tiles) {
        check_tile(plan, tile, memory.data(), pieces);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CudaTables, segments_of_a_tile_follow_each_other) {
  // Upload and download of a tile are one copy each, mains first.
  for (const Case& c : kCases) {
    const Plan plan = plan_of(c, Storage::kFp8E4m3Scaled);
    for (const Tile& tile : plan.tiles) {
      std::uint64_t end = 0;
      for (std::uint32_t s = 0; s < kSegments; ++s) {
        if (tile.bytes[s] == 0) continue;
        EXPECT_EQ(tile.memory_offset[s], end);
        end += tile.bytes[s];
      }
      EXPECT_EQ(end, tile.total_bytes);
    }
  }
}

TEST(CudaTables, a_shard_is_told_with_what_the_step_brought) {
  ShardWork work;
  float grad = 0, model = 0, main = 0;
  work.grad = &grad;
  work.model = &model;
  work.given_main = &main;
  work.grad_element = kernels::Element::kBf16;
  work.model_element = kernels::Element::kFp16;
  work.scalars = 7;
  work.active = true;
  const kernels::CudaShard shard = cuda_shard(work, false);
  EXPECT_EQ(static_cast<const void*>(shard.grad), &grad);
  EXPECT_EQ(static_cast<void*>(shard.model), &model);
  EXPECT_EQ(shard.given_main, &main);
  EXPECT_EQ(shard.grad_element, kernels::Element::kBf16);
  EXPECT_EQ(shard.model_element, kernels::Element::kFp16);
  EXPECT_EQ(shard.scalars, 7U);
  EXPECT_FALSE(shard.active);
}

}  // namespace
}  // namespace millpond::plugin
