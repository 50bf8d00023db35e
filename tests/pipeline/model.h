// A streamed state on real files beside a plain copy of what it must hold.
#ifndef MILLPOND_TESTS_PIPELINE_MODEL_H_
#define MILLPOND_TESTS_PIPELINE_MODEL_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "plugin/io/engine.h"
#include "plugin/layout/plan.h"
#include "plugin/pipeline/pipeline.h"
#include "tests/pipeline/watched_engine.h"
#include "tests/sanitized.h"

namespace millpond::plugin {

// Layout of small tiles: `tiles` tiles of 4096 elements (48 KiB with fp32 moments), two shards.
inline Plan small_plan(std::uint32_t tiles, bool moments_only = false,
                       kernels::Storage moments = kernels::Storage::kFp32,
                       std::uint64_t tile_elements = 4096) {
  LayoutOptions options;
  options.tile_elements = tile_elements;
  options.block_elements = 4096;
  options.bucket_elements = 7 * tile_elements;
  options.storage = {kernels::Storage::kFp32, moments, moments};
  std::vector<ShardShape> shards;
  for (std::uint32_t left = tiles; left != 0;) {
    // Buckets of seven tiles, so that a store has several; the last tile of all is shorter.
    const std::uint32_t take = std::min(left, 7u);
    left -= take;
    shards.push_back({take * tile_elements - (left == 0 ? 1000 : 0), tiles - left, moments_only});
  }
  return make_plan(shards, options);
}

inline Fd memory_file(std::uint64_t bytes) {
  const int fd = memfd_create("millpond-test", MFD_CLOEXEC);
  EXPECT_GE(fd, 0);
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
  return Fd(fd);
}

inline std::vector<std::uint32_t> all_tiles(const Plan& plan) {
  std::vector<std::uint32_t> tiles(plan.tiles.size());
  std::iota(tiles.begin(), tiles.end(), 0u);
  return tiles;
}

// One store: the state, and for each tile the bytes that it must have.
struct ModelStore {
  struct Contents {
    std::vector<std::uint8_t> bytes;  // as in a place: main, exp_avg, exp_avg_sq
    bool moments = false;
  };

  ModelStore(Plan plan, std::string uid, bool verify = true) : salt(uid.size() * 77 + uid[0]) {
    std::vector<Fd> files;
    std::vector<std::string> paths;
    for (const Bucket& bucket : plan.buckets) {
      files.push_back(memory_file(bucket.file_bytes));
      paths.push_back(uid + "/bucket" + std::to_string(paths.size()));
    }
    for (const Tile& tile : plan.tiles)
      contents.push_back({std::vector<std::uint8_t>(tile.total_bytes), false});
    state = std::make_unique<StreamedState>(std::move(plan), std::move(uid), std::move(files),
                                            std::move(paths), verify);
  }

  // Whether the view is what the model says; the rest of a tile without moments is zero.
  void expect_equal(const TileView& view) const {
    const Contents& wanted = contents[view.index];
    ASSERT_EQ(view.moments_present, wanted.moments) << "tile " << view.index;
    ASSERT_EQ(std::memcmp(view.memory, wanted.bytes.data(), wanted.bytes.size()), 0)
        << "tile " << view.index;
  }

  // Changes the tile and the model alike. `moments`: the work makes them.
  void change(TileView& view, std::uint64_t round, bool moments) {
    Contents& wanted = contents[view.index];
    const Tile& tile = *view.tile;
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      if (s != 0 && !(moments || wanted.moments)) break;
      // A page is made, then repeated with its number: quick also under a sanitizer.
      std::uint64_t page[512];
      for (std::uint64_t i = 0; i < 512; ++i) {
        page[i] =
            (salt + round * 1000003 + view.index * 8191 + s * 131 + i) * 0x9E3779B97F4A7C15ull;
      }
      for (std::uint64_t at = 0; at < tile.bytes[s]; at += sizeof page) {
        page[0] = at + round;
        std::memcpy(view.memory + tile.memory_offset[s] + at, page, sizeof page);
        std::memcpy(wanted.bytes.data() + tile.memory_offset[s] + at, page, sizeof page);
      }
    }
    wanted.moments = wanted.moments || moments;
    view.moments_present = wanted.moments;
    view.dirty = true;
  }

  // Work of a first initialisation: makes mains.
  void overwrite(TileView& view, std::uint64_t round, bool moments) {
    Contents& wanted = contents[view.index];
    std::fill(wanted.bytes.begin(), wanted.bytes.end(), 0);
    ASSERT_EQ(std::memcmp(view.memory, wanted.bytes.data(), wanted.bytes.size()), 0)
        << "memory of an overwritten tile is zeroed";
    wanted.moments = false;
    change(view, round, moments);
  }

  std::uint64_t salt;
  std::vector<Contents> contents;
  std::unique_ptr<StreamedState> state;
};

// Engine, threads and pipeline around stores.
struct Rig {
  explicit Rig(std::uint64_t memory, std::uint32_t threads = 2, std::uint64_t seed = 1,
               std::chrono::milliseconds timeout = std::chrono::seconds(20))
      : pool(threads) {
    auto raw = std::make_unique<WatchedEngine>(8, seed);
    watched = raw.get();
    engine = std::make_unique<Engine>(std::move(raw), timeout);
    PipelineOptions options;
    options.host_memory_bytes = memory;
    options.ring_bytes = 0;  // four places
    pipeline = std::make_unique<Pipeline>(options, *engine, pool);
  }
  void plan(const std::vector<ModelStore*>& stores) {
    std::vector<StreamedState*> states;
    for (ModelStore* store : stores) states.push_back(store->state.get());
    pipeline->plan_tier(states);
  }
  template <typename Function>
  millpond_step_figures visit(ModelStore& store, const std::vector<std::uint32_t>& tiles,
                              Access access, Function function) {
    millpond_step_figures figures{};
    CallOnTile work(function);
    pipeline->visit(*store.state, tiles, access, work, &figures);
    return figures;
  }
  millpond_step_figures fill(ModelStore& store, std::uint64_t round = 1, bool moments = false) {
    return visit(store, all_tiles(store.state->plan()), Access::kOverwrite,
                 [&](TileView& view) { store.overwrite(view, round, moments); });
  }
  millpond_step_figures step(ModelStore& store, std::uint64_t round) {
    return visit(store, all_tiles(store.state->plan()), Access::kUpdate, [&](TileView& view) {
      store.expect_equal(view);
      store.change(view, round, true);
    });
  }
  millpond_step_figures read(ModelStore& store) {
    return visit(store, all_tiles(store.state->plan()), Access::kRead,
                 [&](TileView& view) { store.expect_equal(view); });
  }

  ThreadPool pool;
  WatchedEngine* watched = nullptr;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Pipeline> pipeline;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_TESTS_PIPELINE_MODEL_H_
