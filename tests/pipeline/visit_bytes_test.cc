// The bytes of a step against the formula: T-K tiles read, T-K tiles written.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/pipeline/model.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kTileBytes = 3 * 4096 * 4;

// Bytes of the T-K tiles that move. The store's last tile is shorter, so the sum depends on which
// ones: it lies between those of the smallest and of the largest T-K tiles, and equals (T-K) whole
// tiles but for the shorter one.
void expect_tiles(const Plan& plan, std::uint64_t tiles, std::uint64_t bytes, const char* what) {
  const std::uint64_t whole = tiles * kTileBytes;
  const std::uint64_t shorter = kTileBytes - plan.tiles.back().total_bytes;
  EXPECT_TRUE(bytes == whole || (tiles != 0 && bytes == whole - shorter))
      << what << ": " << bytes << " bytes for " << tiles << " tiles";
}

TEST(VisitBytes, a_step_reads_and_writes_all_but_the_tiles_kept) {
  for (const std::uint32_t tiles : {1u, 2u, 3u, 5u, 8u, 20u, 33u}) {
    for (std::uint32_t places = 2; places <= tiles + 3; places += kSanitized  ? 5
                                                                  : tiles > 8 ? 3
                                                                              : 1) {
      SCOPED_TRACE(testing::Message() << "T " << tiles << " places " << places);
      Rig rig(places * kTileBytes + 4095);
      ModelStore store(small_plan(tiles), "dense");
      rig.plan({&store});
      const std::uint64_t held = std::min(places, tiles);
      EXPECT_EQ(rig.pipeline->places(), held);
      EXPECT_EQ(rig.pipeline->place_bytes(),
                std::min<std::uint64_t>(kTileBytes, store.state->plan().max_tile_bytes));
      EXPECT_EQ(rig.pipeline->host_bytes(), held * rig.pipeline->place_bytes());
      EXPECT_LE(rig.pipeline->host_bytes(), places * kTileBytes);
      const std::uint64_t ring = held == tiles ? 0 : std::min<std::uint64_t>(4, held);
      EXPECT_EQ(rig.pipeline->ring_places(), ring);
      const std::uint64_t kept = held - ring;
      EXPECT_EQ(store.state->tier_tiles(), kept);

      rig.fill(store);
      rig.step(store, 2);
      for (std::uint64_t round = 3; round < 8; ++round) {
        const std::uint64_t read = rig.watched->read_bytes;
        const millpond_step_figures figures = rig.step(store, round);
        expect_tiles(store.state->plan(), tiles - kept, figures.bytes_read, "read");
        expect_tiles(store.state->plan(), tiles - kept, figures.bytes_written, "written");
        EXPECT_EQ(figures.tiles, tiles);
        EXPECT_EQ(figures.tiles_from_tier, kept);
        EXPECT_EQ(figures.bytes_read + figures.bytes_from_tier, store.state->plan().state_bytes);
        EXPECT_EQ(rig.watched->read_bytes - read, figures.bytes_read);  // the engine's own count
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(VisitBytes, what_was_counted_as_written_is_written) {
  Rig rig(9 * kTileBytes);
  ModelStore store(small_plan(25), "dense");
  rig.plan({&store});
  std::uint64_t counted = rig.fill(store).bytes_written;
  for (std::uint64_t round = 2; round < 6; ++round) counted += rig.step(store, round).bytes_written;
  rig.pipeline->settle();
  EXPECT_EQ(rig.watched->written_bytes, counted);
  EXPECT_EQ(rig.engine->in_flight(), 0u);
}

TEST(VisitBytes, the_first_step_reads_mains_only_and_writes_everything) {
  Rig rig(8 * kTileBytes);
  ModelStore store(small_plan(28), "dense");  // whole tiles but the last
  rig.plan({&store});
  const std::uint64_t kept = store.state->tier_tiles();
  ASSERT_EQ(kept, 4u);
  const millpond_step_figures fill = rig.fill(store);
  EXPECT_EQ(fill.bytes_read, 0u);
  EXPECT_EQ(fill.bytes_written, (28 - kept) * kTileBytes / 3);
  const millpond_step_figures first = rig.step(store, 2);
  EXPECT_EQ(first.bytes_read, (28 - kept) * kTileBytes / 3);
  EXPECT_GT(first.bytes_written, (28 - kept - 1) * kTileBytes);
  for (std::uint32_t t = 0; t < 28; ++t) EXPECT_TRUE(store.state->moments_present(t));
}

TEST(VisitBytes, sixteen_bit_moments_move_eight_twelfths) {
  std::uint64_t read[2];
  int i = 0;
  for (const auto storage : {kernels::Storage::kFp32, kernels::Storage::kBf16}) {
    ModelStore store(small_plan(24, false, storage), "dense");
    Rig rig(6 * store.state->plan().max_tile_bytes);
    rig.plan({&store});
    rig.fill(store);
    rig.step(store, 2);
    rig.step(store, 3);
    read[i++] = rig.step(store, 4).bytes_read;
  }
  EXPECT_EQ(read[0] / 12 * 8, read[1]);
}

TEST(VisitBytes, two_stores_share_the_tier_in_proportion_and_in_any_order) {
  Rig rig(16 * kTileBytes);
  ModelStore dense(small_plan(28), "dense");
  ModelStore expert(small_plan(14), "expert");
  rig.plan({&dense, &expert});
  EXPECT_EQ(dense.state->tier_tiles(), 8u);
  EXPECT_EQ(expert.state->tier_tiles(), 4u);
  rig.fill(dense);
  rig.fill(expert);
  rig.step(dense, 2);
  rig.step(expert, 2);
  for (std::uint64_t round = 3; round < 9; ++round) {
    ModelStore* first = round % 3 == 0 ? &expert : &dense;
    ModelStore* second = round % 3 == 0 ? &dense : &expert;
    for (ModelStore* store : {first, second}) {
      const Plan& plan = store->state->plan();
      const millpond_step_figures figures = rig.step(*store, round);
      const std::uint64_t moving = plan.tiles.size() - store->state->tier_tiles();
      expect_tiles(plan, moving, figures.bytes_read, "read");
      expect_tiles(plan, moving, figures.bytes_written, "written");
    }
  }
}

TEST(VisitBytes, reads_and_writes_go_side_by_side) {
  Rig rig(12 * kTileBytes);
  ModelStore store(small_plan(60), "dense");
  rig.plan({&store});
  rig.fill(store);
  rig.step(store, 2);
  rig.pipeline->settle();
  rig.watched->attempts = rig.watched->reads_beside_writes = 0;
  rig.step(store, 3);
  // All but the ends of the step: 52 tiles each way, 3 segments.
  EXPECT_GT(rig.watched->reads_beside_writes * 10, rig.watched->attempts * 8);
}

TEST(VisitBytes, tiles_that_are_not_visited_stay_or_leave_once) {
  Rig rig(10 * kTileBytes);
  ModelStore store(small_plan(28), "dense");
  rig.plan({&store});  // K = 6
  rig.fill(store);
  rig.step(store, 2);
  // A third of the tiles has gradients now: after one step of settling, 9 - K move.
  std::vector<std::uint32_t> some;
  for (std::uint32_t t = 0; t < 27; t += 3) some.push_back(t);
  for (std::uint64_t round = 3; round < 8; ++round) {
    const auto figures = rig.visit(store, some, Access::kUpdate, [&](TileView& view) {
      store.expect_equal(view);
      store.change(view, round, true);
    });
    if (round == 3) continue;
    EXPECT_EQ(figures.bytes_read, 3 * kTileBytes);
    EXPECT_EQ(figures.bytes_written, 3 * kTileBytes);
  }
}

TEST(VisitBytes, reading_writes_nothing_and_leaves_the_tier_as_it_was) {
  Rig rig(10 * kTileBytes);
  ModelStore store(small_plan(28), "dense");
  rig.plan({&store});
  rig.fill(store);
  rig.step(store, 2);
  rig.step(store, 3);
  for (int i = 0; i < 2; ++i) {
    const millpond_step_figures figures = rig.read(store);
    EXPECT_EQ(figures.bytes_written, 0u);
    EXPECT_EQ(figures.tiles_from_tier, 6u);
    expect_tiles(store.state->plan(), 22, figures.bytes_read, "read");
  }
  expect_tiles(store.state->plan(), 22, rig.step(store, 4).bytes_read, "step after reading");
}

TEST(VisitBytes, an_update_that_changes_nothing_writes_nothing) {
  Rig rig(6 * kTileBytes);
  ModelStore store(small_plan(20), "dense");
  rig.plan({&store});
  rig.fill(store, 1, true);
  rig.pipeline->flush(*store.state);
  for (int i = 0; i < 3; ++i) {
    const auto figures = rig.visit(store, all_tiles(store.state->plan()), Access::kUpdate,
                                   [&](TileView& view) { store.expect_equal(view); });
    EXPECT_EQ(figures.bytes_written, 0u);
  }
}

TEST(VisitBytes, a_flushed_tile_leaves_without_being_written_again) {
  Rig rig(10 * kTileBytes);
  ModelStore store(small_plan(28), "dense");
  rig.plan({&store});
  rig.fill(store, 1, true);
  rig.pipeline->flush(*store.state);
  const std::uint64_t written = rig.watched->written_bytes;
  rig.pipeline->flush(*store.state);
  EXPECT_EQ(rig.watched->written_bytes, written);  // nothing is dirty any more
  std::vector<std::uint32_t> low = {0, 1, 2, 3, 4, 5};
  const auto figures =
      rig.visit(store, low, Access::kUpdate, [&](TileView& view) { store.expect_equal(view); });
  EXPECT_EQ(figures.bytes_written, 0u);
}

TEST(VisitBytes, moments_only_buckets_have_nothing_to_read_before_the_first_step) {
  ModelStore store(small_plan(20, true), "native");
  Rig rig(6 * store.state->plan().max_tile_bytes);
  rig.plan({&store});
  EXPECT_EQ(rig.fill(store).bytes_written, 0u);
  EXPECT_EQ(rig.step(store, 2).bytes_read, 0u);
  const std::uint64_t kept = store.state->tier_tiles();
  EXPECT_EQ(rig.step(store, 3).bytes_read, (20 - kept) * kTileBytes / 3 * 2);
}

}  // namespace
}  // namespace millpond::plugin
