// Bytes against a plain copy under random sequences of everything that a pipeline can be asked.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "checkpoint/block_sum.h"
#include "tests/pipeline/model.h"

namespace millpond::plugin {
namespace {

// After flush the files hold the model and the sums are those of the files, read without the
// pipeline.
void expect_files(const ModelStore& store) {
  const Plan& plan = store.state->plan();
  const std::uint64_t seed = checkpoint::uid_seed(store.state->uid());
  for (std::uint32_t t = 0; t < plan.tiles.size(); ++t) {
    const Tile& tile = plan.tiles[t];
    const auto& wanted = store.contents[t];
    ASSERT_EQ(store.state->moments_present(t), wanted.moments);
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      if (tile.bytes[s] == 0 || (s != 0 && !wanted.moments)) continue;
      std::vector<std::byte> file(tile.bytes[s]);
      ASSERT_EQ(pread(store.state->fd(tile.bucket), file.data(), file.size(),
                      static_cast<off_t>(tile.file_offset[s])),
                static_cast<ssize_t>(file.size()));
      ASSERT_EQ(std::memcmp(file.data(), wanted.bytes.data() + tile.memory_offset[s], file.size()),
                0)
          << "tile " << t << " segment " << s;
      const std::uint64_t block_bytes =
          kernels::block_bytes(plan.options.storage[s], plan.options.block_elements);
      for (std::uint64_t b = 0; b < tile.blocks; ++b) {
        const std::uint64_t at = b * block_bytes;
        const std::uint64_t size = std::min(block_bytes, file.size() - at);
        ASSERT_EQ(store.state->sums(tile.bucket, s)[tile.first_block + b],
                  checkpoint::block_sum(seed, tile.bucket, s, tile.first_block + b,
                                        file.data() + at, size));
      }
    }
  }
}

std::vector<std::uint32_t> random_tiles(std::mt19937_64& random, const Plan& plan) {
  std::vector<std::uint32_t> tiles;
  const std::uint64_t style = random() % 4;
  for (std::uint32_t t = 0; t < plan.tiles.size(); ++t) {
    if (style == 0 || random() % (style * style + 1) == 0) tiles.push_back(t);
  }
  return tiles;
}

void random_life(std::uint64_t seed, bool verify) {
  std::mt19937_64 random(seed);
  ModelStore dense(
      small_plan(1 + random() % 30, false,
                 random() % 2 == 0 ? kernels::Storage::kFp32 : kernels::Storage::kFp8E4m3Scaled,
                 4096 * (1 + random() % 3)),
      "dense", verify);
  ModelStore expert(small_plan(random() % 20, random() % 3 == 0), "expert", verify);
  const std::uint64_t place =
      std::max(dense.state->plan().max_tile_bytes, expert.state->plan().max_tile_bytes);
  Rig rig((2 + random() % 40) * place, 1 + random() % 3, seed);
  rig.plan({&dense, &expert});
  rig.fill(dense);
  rig.fill(expert);
  for (std::uint64_t round = 2; round < 50; ++round) {
    ModelStore& store = random() % 2 == 0 ? dense : expert;
    const std::vector<std::uint32_t> tiles = random_tiles(random, store.state->plan());
    switch (random() % 10) {
      case 0:
      case 1:
      case 2:
      case 3:
        rig.visit(store, tiles, Access::kUpdate, [&](TileView& view) {
          store.expect_equal(view);
          if (view.index % 5 != round % 5) store.change(view, round, view.index % 3 != round % 3);
        });
        break;
      case 4:
        rig.visit(store, tiles, Access::kRead, [&](TileView& view) { store.expect_equal(view); });
        break;
      case 5:
        rig.visit(store, tiles, Access::kOverwrite, [&](TileView& view) {
          store.overwrite(view, round, view.index % 2 == round % 2);
        });
        break;
      case 6:
        rig.pipeline->flush(*store.state);
        expect_files(store);
        break;
      case 7:
        rig.pipeline->flush(*store.state);
        rig.pipeline->discard(*store.state);
        break;
      case 8:
        rig.pipeline->suspend();
        EXPECT_EQ(rig.pipeline->host_bytes(), 0u);
        rig.pipeline->suspend();
        rig.pipeline->resume();
        break;
      case 9:
        rig.plan(random() % 2 == 0 ? std::vector<ModelStore*>{&expert, &dense}
                                   : std::vector<ModelStore*>{&dense, &expert});
        break;
    }
    if (testing::Test::HasFatalFailure()) return;
  }
  for (ModelStore* store : {&dense, &expert}) {
    rig.read(*store);
    rig.pipeline->flush(*store->state);
    expect_files(*store);
  }
}

TEST(VisitContent, random_sequences_keep_every_byte) {
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 8 : 40); ++seed) {
    SCOPED_TRACE(seed);
    random_life(seed, seed % 4 != 0);
    if (HasFatalFailure()) return;
  }
}

TEST(VisitContent, discard_forgets_what_was_not_written) {
  Rig rig(1 << 30);
  ModelStore store(small_plan(9), "dense");
  rig.plan({&store});
  rig.fill(store);
  rig.pipeline->flush(*store.state);
  const auto before = store.contents;
  rig.step(store, 2);
  EXPECT_TRUE(store.state->moments_present(3));
  rig.pipeline->discard(*store.state);
  EXPECT_FALSE(store.state->moments_present(3));
  store.contents = before;
  rig.read(store);
}

TEST(VisitContent, a_state_may_die_before_the_pipeline_and_after_it) {
  ModelStore survivor(small_plan(12), "survivor");
  {
    Rig rig(12 * 3 * 4096 * 4);
    rig.plan({&survivor});
    rig.fill(survivor);
    {
      ModelStore gone(small_plan(12), "gone");
      rig.plan({&survivor, &gone});
      rig.fill(gone);
      const int fd = gone.state->fd(0);
      gone.state.reset();
      EXPECT_NE(std::find(rig.watched->forgotten.begin(), rig.watched->forgotten.end(), fd),
                rig.watched->forgotten.end());
    }
    rig.step(survivor, 2);
    rig.plan({&survivor});
    rig.step(survivor, 3);
  }
}

TEST(VisitContent, B41_stores_without_tiles_are_fine) {
  Rig rig(0);
  ModelStore none(make_plan(std::vector<ShardShape>{{0, 0, false}}, LayoutOptions{}), "none");
  rig.plan({&none});
  EXPECT_EQ(rig.pipeline->host_bytes(), 0u);
  rig.step(none, 1);
  rig.pipeline->flush(*none.state);
  rig.pipeline->suspend();
  rig.pipeline->resume();
  ModelStore some(small_plan(3), "some");
  rig.plan({&none, &some});
  rig.fill(some);
  rig.step(none, 2);
  rig.step(some, 2);
  rig.plan({});
  EXPECT_EQ(rig.pipeline->host_bytes(), 0u);
}

// Work like a device's: several tiles at once, finished by another thread in its own time and out
// of order.
class SlowDevice final : public TileWork {
 public:
  SlowDevice(ModelStore& store, std::uint64_t round) : store_(store), round_(round) {}
  std::uint32_t capacity() const override { return 3; }
  void start(TileView* tile) override {
    started_.push_back(tile);
    most_ = std::max(most_, started_.size());
    EXPECT_LE(started_.size(), capacity());
  }
  TileView* finished(bool wait) override {
    if (started_.empty() || (!wait && ++polls_ % 3 != 0)) return nullptr;
    const std::size_t pick = polls_ % started_.size();
    TileView* const tile = started_[pick];
    started_.erase(started_.begin() + static_cast<std::ptrdiff_t>(pick));
    store_.expect_equal(*tile);
    store_.change(*tile, round_, true);
    return tile;
  }
  std::size_t most() const { return most_; }

 private:
  ModelStore& store_;
  std::uint64_t round_;
  std::vector<TileView*> started_;
  std::uint64_t polls_ = 0;
  std::size_t most_ = 0;
};

TEST(VisitContent, a_device_is_given_as_many_tiles_as_it_takes) {
  for (const std::uint64_t places : {2, 5, 9, 40}) {
    Rig rig(places * 3 * 4096 * 4);
    ModelStore store(small_plan(30), "dense");
    rig.plan({&store});
    rig.fill(store);
    for (std::uint64_t round = 2; round < 6; ++round) {
      SlowDevice device(store, round);
      millpond_step_figures figures{};
      rig.pipeline->visit(*store.state, all_tiles(store.state->plan()), Access::kUpdate, device,
                          &figures);
      EXPECT_EQ(device.most(), std::min<std::size_t>(3, rig.pipeline->places()));
    }
    rig.read(store);
  }
}

// The stages at once on real threads and files: what TSan looks at.
TEST(VisitContent, real_engines_and_threads) {
  for (const char* kind : {"threads", "auto"}) {
    ModelStore dense(small_plan(40), "dense");
    ModelStore expert(small_plan(17), "expert");
    ThreadPool pool(3);
    Engine engine(make_raw_engine(kind, 16).raw, std::chrono::seconds(30));
    PipelineOptions options;
    options.host_memory_bytes = 14 * 3 * 4096 * 4;
    options.ring_bytes = 0;
    Pipeline pipeline(options, engine, pool);
    StreamedState* const states[] = {dense.state.get(), expert.state.get()};
    pipeline.plan_tier(states);
    for (std::uint64_t round = 1; round < 12; ++round) {
      for (ModelStore* store : {&dense, &expert}) {
        CallOnTile work([&](TileView& view) {
          if (round == 1) return store->overwrite(view, round, false);
          store->expect_equal(view);
          // The update of a tile runs on the pool, as the CPU device does it.
          pool.run(4, [&](std::uint64_t i) {
            volatile std::byte* const at = view.memory + i * 1024;
            *at = *at;
          });
          store->change(view, round, true);
        });
        pipeline.visit(*store->state, all_tiles(store->state->plan()),
                       round == 1 ? Access::kOverwrite : Access::kUpdate, work, nullptr);
      }
    }
    for (ModelStore* store : {&dense, &expert}) {
      pipeline.flush(*store->state);
      expect_files(*store);
    }
  }
}

}  // namespace
}  // namespace millpond::plugin
