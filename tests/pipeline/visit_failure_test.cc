// What fails, fails once, is told with its place, and leaves nothing in flight.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "millpond/base.h"
#include "millpond/error.hpp"
#include "tests/pipeline/model.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kTileBytes = 3 * 4096 * 4;

// The error of an action, or none.
std::optional<Error> error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

void flip(const ModelStore& store, std::uint32_t tile, std::uint32_t s, std::uint64_t byte) {
  const Tile& t = store.state->plan().tiles[tile];
  const int fd = store.state->fd(t.bucket);
  const auto at = static_cast<off_t>(t.file_offset[s] + byte);
  char value = 0;
  ASSERT_EQ(pread(fd, &value, 1, at), 1);
  value = static_cast<char>(value ^ 0x40);
  ASSERT_EQ(pwrite(fd, &value, 1, at), 1);
}

TEST(VisitFailure, R04_a_flipped_bit_is_found_and_named) {
  for (std::uint32_t s = 0; s < kSegments; ++s) {
    Rig rig(4 * 2 * kTileBytes);
    ModelStore store(small_plan(15, false, kernels::Storage::kFp32, 8192), "dense");
    rig.plan({&store});
    rig.fill(store, 1, true);
    rig.pipeline->flush(*store.state);
    rig.pipeline->discard(*store.state);
    flip(store, 9, s, 4096 * 4 + 5);  // tile 9 is the third of bucket 1; its second block
    const auto error = error_of([&] { rig.read(store); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), MILLPOND_E_CORRUPT);
    const std::string text = error->what();
    EXPECT_NE(text.find("dense/bucket1"), std::string::npos) << text;
    EXPECT_NE(text.find("block 5 of segment " + std::to_string(s)), std::string::npos) << text;
    EXPECT_EQ(error->offset(), store.state->plan().tiles[9].file_offset[s] + 4096 * 4);
    EXPECT_NE(error->wanted(), error->got());
    EXPECT_EQ(error->wanted(), store.state->sums(1, s)[5]);
    EXPECT_EQ(rig.engine->in_flight(), 0u);
    // Reading changed nothing: without the flip all is well again.
    EXPECT_FALSE(store.state->failure());
    flip(store, 9, s, 4096 * 4 + 5);
    rig.read(store);
  }
}

TEST(VisitFailure, without_verify_a_flipped_bit_passes) {
  Rig rig(4 * kTileBytes);
  ModelStore store(small_plan(12), "dense", false);
  rig.plan({&store});
  rig.fill(store, 1, true);
  rig.pipeline->flush(*store.state);
  rig.pipeline->discard(*store.state);
  flip(store, 5, 0, 0);
  rig.visit(store, all_tiles(store.state->plan()), Access::kRead, [](TileView&) {});
}

TEST(VisitFailure, swapped_and_stale_blocks_are_found) {
  for (const bool stale : {false, true}) {
    Rig rig(4 * kTileBytes);
    ModelStore store(small_plan(12), "dense");
    rig.plan({&store});
    const Plan& plan = store.state->plan();
    const auto bytes_of = [&](std::uint32_t tile) {
      std::vector<char> bytes(plan.tiles[tile].bytes[0]);
      EXPECT_EQ(pread(store.state->fd(0), bytes.data(), bytes.size(),
                      static_cast<off_t>(plan.tiles[tile].file_offset[0])),
                static_cast<ssize_t>(bytes.size()));
      return bytes;
    };
    const auto write_to = [&](std::uint32_t tile, const std::vector<char>& bytes) {
      EXPECT_EQ(pwrite(store.state->fd(0), bytes.data(), bytes.size(),
                       static_cast<off_t>(plan.tiles[tile].file_offset[0])),
                static_cast<ssize_t>(bytes.size()));
    };
    // All tiles hold the same bytes, so that only the position in the seed tells them apart.
    const auto same = [&](TileView& view) {
      std::memset(view.memory, 7, view.tile->bytes[0]);
      view.dirty = true;
    };
    const auto visit = [&](Access access) {
      rig.visit(store, all_tiles(plan), access, same);
      rig.pipeline->flush(*store.state);
    };
    visit(Access::kOverwrite);
    if (stale) {
      const auto old = bytes_of(2);
      rig.visit(store, {2}, Access::kUpdate, [&](TileView& view) {
        view.memory[77] = std::byte{1};
        view.dirty = true;
      });
      rig.pipeline->flush(*store.state);
      write_to(2, old);
    } else {
      rig.visit(store, {1}, Access::kUpdate, [&](TileView& view) {
        view.memory[0] = std::byte{1};
        view.dirty = true;
      });
      rig.pipeline->flush(*store.state);
      const auto one = bytes_of(1);
      write_to(1, bytes_of(2));
      write_to(2, one);
    }
    rig.pipeline->discard(*store.state);
    const auto error = error_of([&] { visit(Access::kRead); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), MILLPOND_E_CORRUPT);
  }
}

TEST(VisitFailure, equal_blocks_in_other_places_have_other_sums) {
  Rig rig(1 << 30);
  ModelStore store(small_plan(12), "dense");
  rig.plan({&store});
  rig.visit(store, all_tiles(store.state->plan()), Access::kOverwrite, [](TileView& view) {
    view.moments_present = true;  // all zero
  });
  rig.pipeline->flush(*store.state);
  std::vector<std::uint64_t> sums;
  for (std::uint32_t b = 0; b < 2; ++b) {
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      for (std::size_t i = 0; i < 4; ++i) sums.push_back(store.state->sums(b, s)[i]);
    }
  }
  std::sort(sums.begin(), sums.end());
  EXPECT_EQ(std::adjacent_find(sums.begin(), sums.end()), sums.end());
}

// Two stores through three steps; `broken` counts down the attempts to the one that fails.
struct TwoStores {
  explicit TwoStores(std::chrono::milliseconds timeout = std::chrono::seconds(20))
      : rig(8 * kTileBytes, 2, 5, timeout) {
    rig.plan({&dense, &expert});
  }
  void run(ModelStore* store, std::uint64_t round) {
    if (round == 1) {
      rig.fill(*store);
    } else {
      rig.step(*store, round);
    }
  }
  Rig rig;
  ModelStore dense{small_plan(12), "dense"};
  ModelStore expert{small_plan(9), "expert"};
};

std::uint64_t attempts_of_all() {
  TwoStores two;
  for (std::uint64_t round = 1; round < 4; ++round) {
    two.run(&two.dense, round);
    two.run(&two.expert, round);
  }
  two.rig.pipeline->settle();
  return two.rig.watched->attempts;
}

void fail_at(std::uint64_t attempt, int code, std::int32_t wanted) {
  TwoStores two(code == WatchedEngine::kHang ? std::chrono::milliseconds(kSanitized ? 1000 : 150)
                                             : std::chrono::seconds(20));
  std::string path;
  int fd = -1;
  two.rig.watched->fault = [&](const Transfer& transfer) {
    if (two.rig.watched->attempts != attempt) return 0;
    path = transfer.path;
    fd = transfer.fd;
    return code;
  };
  bool failed = false;
  for (std::uint64_t round = 1; round < 4 && !failed; ++round) {
    for (ModelStore* store : {&two.dense, &two.expert}) {
      const auto error = error_of([&] { two.run(store, round); });
      if (!error) continue;
      failed = true;
      EXPECT_EQ(error->code(), wanted) << error->what();
      EXPECT_NE(std::string(error->what()).find(path), std::string::npos) << error->what();
      EXPECT_NE(path.find(store->state->uid()), std::string::npos) << "the wrong store failed";
      EXPECT_EQ(two.rig.engine->in_flight(), 0u);
    }
  }
  two.rig.pipeline->settle();
  ModelStore* const guilty = path.rfind("dense", 0) == 0 ? &two.dense : &two.expert;
  ModelStore* const innocent = guilty == &two.dense ? &two.expert : &two.dense;
  ASSERT_FALSE(path.empty());
  EXPECT_TRUE(guilty->state->failure()) << "attempt " << attempt;
  EXPECT_FALSE(innocent->state->failure());
  // The state refuses, the pipeline goes on: the other store is unharmed, and a new state takes
  // the place of the broken one.
  EXPECT_TRUE(error_of([&] { two.rig.read(*guilty); }));
  EXPECT_TRUE(error_of([&] { two.rig.pipeline->flush(*guilty->state); }));
  if (innocent->state->moments_present(0)) two.rig.read(*innocent);
  two.rig.watched->release();
  EXPECT_TRUE(two.rig.engine->drain_owned(std::chrono::seconds(5)));
  EXPECT_EQ(two.rig.engine->owned_bytes(), 0u);
  ModelStore fresh(small_plan(12), "fresh");
  two.rig.plan({innocent, &fresh});
  two.rig.fill(fresh);
  two.rig.step(fresh, 2);
  two.rig.step(fresh, 3);
}

TEST(VisitFailure, B15_every_transfer_that_can_fail_fails) {
  const std::uint64_t all = attempts_of_all();
  ASSERT_GT(all, 100u);
  for (std::uint64_t attempt = 1; attempt <= all; attempt += kSanitized ? 13 : 3) {
    SCOPED_TRACE(attempt);
    const int code = attempt % 2 == 0 ? EIO : attempt % 5 == 0 ? EDQUOT : ENOSPC;
    fail_at(attempt, code, code == EIO ? MILLPOND_E_IO : MILLPOND_E_NO_SPACE);
    if (HasFatalFailure()) return;
  }
}

TEST(VisitFailure, a_transfer_without_an_answer_times_out_and_its_place_is_not_reused) {
  const std::uint64_t all = attempts_of_all();
  for (std::uint64_t attempt = 1; attempt <= all; attempt += kSanitized ? 41 : 17) {
    SCOPED_TRACE(attempt);
    fail_at(attempt, WatchedEngine::kHang, MILLPOND_E_TIMEOUT);
    if (HasFatalFailure()) return;
  }
}

TEST(VisitFailure, a_drive_that_answers_nothing_any_more_does_not_hang_the_pipeline) {
  TwoStores two(std::chrono::milliseconds(kSanitized ? 1000 : 150));
  two.run(&two.dense, 1);
  two.rig.pipeline->settle();
  bool dead = true;
  two.rig.watched->fault = [&](const Transfer&) { return dead ? WatchedEngine::kHang : 0; };
  EXPECT_TRUE(error_of([&] { two.run(&two.dense, 2); }));
  EXPECT_TRUE(error_of([&] { two.run(&two.expert, 1); }));
  EXPECT_GT(two.rig.engine->owned_bytes(), 0u);
  // The region cannot go while the kernel may write to it.
  EXPECT_EQ(error_of([&] { two.rig.pipeline->suspend(); })->code(), MILLPOND_E_TIMEOUT);
  ModelStore fresh(small_plan(12), "fresh");
  EXPECT_EQ(error_of([&] { two.rig.plan({&fresh}); })->code(), MILLPOND_E_TIMEOUT);
  dead = false;
  two.rig.watched->release();
  EXPECT_TRUE(two.rig.engine->drain_owned(std::chrono::seconds(5)));
  two.rig.plan({&fresh});
  two.rig.fill(fresh);
  two.rig.step(fresh, 2);
}

TEST(VisitFailure, work_that_throws_leaves_nothing_in_flight) {
  for (const Access access : {Access::kRead, Access::kUpdate, Access::kOverwrite}) {
    Rig rig(6 * kTileBytes);
    ModelStore store(small_plan(20), "dense");
    rig.plan({&store});
    rig.fill(store, 1, true);
    int calls = 0;
    const auto failing = [&](TileView&) {
      if (++calls == 7) throw Error(MILLPOND_E_CALLBACK, "update", "the host said no");
    };
    const auto error =
        error_of([&] { rig.visit(store, all_tiles(store.state->plan()), access, failing); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), MILLPOND_E_CALLBACK);
    EXPECT_EQ(calls, 7);
    EXPECT_EQ(rig.engine->in_flight(), 0u);
    EXPECT_EQ(store.state->failure().has_value(), access != Access::kRead);
    if (access == Access::kRead) rig.step(store, 2);
  }
  Rig rig(6 * kTileBytes);
  ModelStore store(small_plan(20), "dense");
  rig.plan({&store});
  EXPECT_THROW(rig.visit(store, {3}, Access::kOverwrite,
                         [](TileView&) { throw std::runtime_error("not an Error"); }),
               std::runtime_error);
  EXPECT_EQ(store.state->failure()->code(), MILLPOND_E_INTERNAL);
}

TEST(VisitFailure, tiles_out_of_order_or_range_are_refused_before_anything_moves) {
  Rig rig(6 * kTileBytes);
  ModelStore store(small_plan(8), "dense");
  rig.plan({&store});
  rig.fill(store);
  for (const std::vector<std::uint32_t>& bad :
       {std::vector<std::uint32_t>{8}, {1, 1}, {2, 1}, {0, 9}}) {
    const auto error = error_of([&] { rig.visit(store, bad, Access::kUpdate, [](TileView&) {}); });
    EXPECT_EQ(error->code(), MILLPOND_E_INTERNAL);
  }
  rig.step(store, 2);
}

TEST(VisitFailure, a_state_without_a_share_and_a_suspended_tier_refuse) {
  Rig rig(6 * kTileBytes);
  ModelStore store(small_plan(8), "dense");
  EXPECT_EQ(error_of([&] { rig.read(store); })->code(), MILLPOND_E_INTERNAL);
  rig.plan({&store});
  rig.fill(store);
  rig.pipeline->suspend();
  EXPECT_EQ(error_of([&] { rig.read(store); })->code(), MILLPOND_E_STATE);
  rig.pipeline->resume();
  rig.read(store);
}

TEST(VisitFailure, suspend_that_cannot_write_keeps_the_memory) {
  Rig rig(6 * kTileBytes);
  ModelStore store(small_plan(12), "dense");
  rig.plan({&store});
  rig.fill(store);
  rig.pipeline->settle();
  rig.watched->fault = [](const Transfer& t) {
    return t.kind == Transfer::Kind::kWrite ? ENOSPC : 0;
  };
  EXPECT_EQ(error_of([&] { rig.pipeline->suspend(); })->code(), MILLPOND_E_NO_SPACE);
  EXPECT_GT(rig.pipeline->host_bytes(), 0u);
  EXPECT_TRUE(store.state->failure());
  rig.pipeline->suspend();  // the store is lost and says so; the memory can be had
  EXPECT_EQ(rig.pipeline->host_bytes(), 0u);
}

}  // namespace
}  // namespace millpond::plugin
