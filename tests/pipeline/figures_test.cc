// The seconds of a step by stage.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/pipeline/model.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kTileBytes = 3 * 4096 * 4;

double sum(const double (&seconds)[5]) {
  double all = 0;
  for (const double s : seconds) all += s;
  return all;
}

TEST(Figures, a_slow_update_bounds_the_step_and_its_time_is_the_updates) {
  Rig rig(1 << 30);
  ModelStore store(small_plan(10), "dense");
  rig.plan({&store});
  rig.fill(store);
  const auto figures =
      rig.visit(store, all_tiles(store.state->plan()), Access::kUpdate, [](TileView& view) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        view.dirty = true;
      });
  EXPECT_EQ(figures.bound_by, MILLPOND_STAGE_UPDATE);
  EXPECT_GE(figures.busy_seconds[MILLPOND_STAGE_UPDATE], 0.05);
  EXPECT_GE(figures.waiting_seconds[MILLPOND_STAGE_UPDATE], 0.05);
  EXPECT_GE(figures.seconds, 0.05);
  EXPECT_EQ(figures.busy_seconds[MILLPOND_STAGE_FETCH], 0.0);
  EXPECT_EQ(figures.busy_seconds[MILLPOND_STAGE_FLUSH], 0.0);
}

void perform(Transfer& attempt) {
  const auto offset = static_cast<off_t>(attempt.offset);
  attempt.done =
      static_cast<std::uint64_t>(attempt.kind == Transfer::Kind::kRead
                                     ? pread(attempt.fd, attempt.memory, attempt.bytes, offset)
                                     : pwrite(attempt.fd, attempt.memory, attempt.bytes, offset));
}

// An engine that begins nothing before it is asked for what is complete.
class LateEngine : public RawEngine {
 public:
  LateEngine() { queue_.reserve(64); }
  const char* name() const override { return "late"; }
  std::uint32_t depth() const override { return 64; }
  void start(Transfer* attempt) override { queue_.push_back(attempt); }
  void flush_submissions() override {}
  void use_memory(std::byte*, std::uint64_t) override {}
  void forget(int) override {}
  std::size_t complete(std::span<Transfer*> completed,
                       std::chrono::steady_clock::time_point deadline) override {
    if (queue_.empty() || deadline <= std::chrono::steady_clock::now()) return 0;
    return answer(queue_, completed);
  }

 private:
  // Takes some out of the queue, which has one at least, and performs them. Returns how many.
  virtual std::size_t answer(std::vector<Transfer*>& queue, std::span<Transfer*> completed) = 0;

  std::vector<Transfer*> queue_;
};

// Reads, or writes, take 3 ms each and one after another.
class SlowEngine final : public LateEngine {
 public:
  explicit SlowEngine(Transfer::Kind slow) : slow_(slow) {}

 private:
  std::size_t answer(std::vector<Transfer*>& queue, std::span<Transfer*> completed) override {
    Transfer* const attempt = queue.front();
    queue.erase(queue.begin());
    if (attempt->kind == slow_) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    perform(*attempt);
    completed[0] = attempt;
    return 1;
  }

  Transfer::Kind slow_;
};

// Everything in flight is answered at once, after 3 ms: a drive behind a limiter of its rate.
class BurstEngine final : public LateEngine {
  std::size_t answer(std::vector<Transfer*>& queue, std::span<Transfer*> completed) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    std::size_t count = 0;
    for (Transfer* const attempt : queue) {
      perform(*attempt);
      completed[count++] = attempt;
    }
    queue.clear();
    return count;
  }
};

// The pipeline over an engine of a test's own; 14 tiles and places for 6.
struct OverEngine {
  explicit OverEngine(std::unique_ptr<RawEngine> raw)
      : engine(std::move(raw), std::chrono::seconds(20)), pipeline(options(), engine, pool) {
    StreamedState* const states[] = {store.state.get()};
    pipeline.plan_tier(states);
    CallOnTile fill([&](TileView& view) { store.overwrite(view, 1, true); });
    pipeline.visit(*store.state, tiles, Access::kOverwrite, fill, nullptr);
    pipeline.settle();
  }
  static PipelineOptions options() {
    PipelineOptions options;
    options.host_memory_bytes = 6 * kTileBytes;
    options.ring_bytes = 0;
    return options;
  }
  void step(millpond_step_figures* figures) {
    CallOnTile change([&](TileView& view) { store.change(view, 2, true); });
    pipeline.visit(*store.state, tiles, Access::kUpdate, change, figures);
  }

  ModelStore store{small_plan(14), "dense"};
  std::vector<std::uint32_t> tiles = all_tiles(store.state->plan());
  ThreadPool pool{1};
  Engine engine;
  Pipeline pipeline;
};

TEST(Figures, a_stage_that_is_waited_for_is_busy) {
  OverEngine over(std::make_unique<BurstEngine>());
  millpond_step_figures figures{};
  over.step(&figures);
  for (const std::uint32_t stage : {MILLPOND_STAGE_FETCH, MILLPOND_STAGE_FLUSH}) {
    EXPECT_GT(figures.waiting_seconds[stage], 0.003) << stage;
    EXPECT_GE(figures.busy_seconds[stage], figures.waiting_seconds[stage] * 0.5) << stage;
    EXPECT_LE(figures.busy_seconds[stage], figures.seconds * 1.001) << stage;
  }
}

TEST(Figures, a_slow_drive_bounds_the_step_and_the_seconds_add_up) {
  for (const Transfer::Kind slow : {Transfer::Kind::kRead, Transfer::Kind::kWrite}) {
    OverEngine over(std::make_unique<SlowEngine>(slow));
    millpond_step_figures figures{};
    over.step(&figures);
    EXPECT_NE(figures.bound_by, MILLPOND_STAGE_UPDATE);
    EXPECT_GT(figures.busy_seconds[MILLPOND_STAGE_FETCH], 0.0);
    EXPECT_GT(figures.busy_seconds[MILLPOND_STAGE_FLUSH], 0.0);
    EXPECT_LE(sum(figures.waiting_seconds), figures.seconds * 1.001);
    EXPECT_GE(sum(figures.waiting_seconds), figures.seconds * 0.5);
    for (const double busy : figures.busy_seconds) EXPECT_LE(busy, figures.seconds * 1.001);
    // A second visit adds to the figures of the first.
    const double first = figures.seconds;
    over.step(&figures);
    EXPECT_GT(figures.seconds, first);
    EXPECT_EQ(figures.tiles, 2 * over.tiles.size());
  }
}

}  // namespace
}  // namespace millpond::plugin
