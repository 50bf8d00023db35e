// Visits beside a save that still reads tiles from memory.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/pipeline/model.h"

namespace millpond::plugin {
namespace {

constexpr std::uint32_t kTiles = 9;
constexpr std::chrono::milliseconds kNone{0};

// All tiles are changed and in memory only, and a save has them.
class Frozen : public ::testing::Test {
 protected:
  Frozen() {
    rig_.plan({&store_});
    rig_.fill(store_);
    rig_.step(store_, 2);
    std::vector<Fd> files;
    std::vector<std::string> paths;
    for (const Bucket& bucket : store_.state->plan().buckets) {
      files.push_back(memory_file(bucket.file_bytes));
      paths.push_back("s/next" + std::to_string(paths.size()));
    }
    snapshot_ = rig_.pipeline->freeze(*store_.state, std::move(files), std::move(paths));
  }
  ~Frozen() override { snapshot_->give_up(); }

  Rig rig_{0};
  ModelStore store_{small_plan(kTiles), "s"};
  std::shared_ptr<Snapshot> snapshot_;
};

TEST_F(Frozen, a_visit_goes_on_with_whichever_tile_the_save_lets_go_next) {
  std::vector<std::atomic<bool>> worked(kTiles);
  std::atomic<bool> over{false};
  // Against the order of the visit; the next tile only when the one before was worked on.
  std::thread save([&] {
    for (std::uint32_t tile = kTiles; tile-- > 0;) {
      snapshot_->written(tile);
      while (!worked[tile] && !over) std::this_thread::yield();
    }
  });
  EXPECT_NO_THROW(
      rig_.visit(store_, all_tiles(store_.state->plan()), Access::kUpdate, [&](TileView& view) {
        store_.expect_equal(view);
        store_.change(view, 3, true);
        worked[view.index] = true;
      }));
  over = true;
  save.join();
  for (const auto& tile : worked) EXPECT_TRUE(tile);
  rig_.pipeline->thaw(*store_.state, *snapshot_, true);
  rig_.read(store_);
}

TEST_F(Frozen, whoever_waits_is_told_of_each_tile_and_of_a_save_that_gives_up) {
  const std::uint64_t seen = snapshot_->unpinned();
  EXPECT_FALSE(snapshot_->wait_any(seen, kNone));
  snapshot_->written(3);
  EXPECT_TRUE(snapshot_->wait_any(seen, kNone)) << "one came since";
  EXPECT_FALSE(snapshot_->wait_any(snapshot_->unpinned(), kNone)) << "none came since";
  EXPECT_TRUE(snapshot_->wait_unpinned(3, kNone));
  EXPECT_FALSE(snapshot_->wait_unpinned(4, kNone));
  const std::uint64_t before = snapshot_->unpinned();
  snapshot_->give_up();
  EXPECT_TRUE(snapshot_->wait_any(before, kNone));
  EXPECT_TRUE(snapshot_->wait_unpinned(4, kNone));
}

}  // namespace
}  // namespace millpond::plugin
