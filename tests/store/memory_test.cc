// What binding, refreshing and stepping take of memory beside the pinned region.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/sanitized.h"
#include "tests/store/peak_memory.h"
#include "tests/store/training.h"

namespace millpond::tests {
namespace {

TEST(Memory, B44_R08_bind_and_refresh_go_tile_by_tile) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's shadow memory hides what is measured";
  constexpr std::uint64_t kElements = 8 << 20;  // 32 MiB of mains, 96 MiB of state
  constexpr std::uint64_t kTile = 65536 * 12;
  TemporaryDirectory scratch;
  Job job(scratch.path(),
          "\"tile_elements\": 65536, \"host_memory_bytes\": " + std::to_string(8 * kTile));
  Training training(job, "s", {{"a", kElements, 0, 0}});
  training.plain.clear();
  PeakMemory peak;
  if (!peak.reset()) GTEST_SKIP() << "/proc/self/clear_refs cannot be written here";
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  millpond_runtime_figures figures{};
  figures.header = {sizeof(figures), MILLPOND_TYPE_RUNTIME_FIGURES};
  ASSERT_EQ(reports().runtime(job.runtime, &figures, &status), MILLPOND_OK);
  EXPECT_LE(figures.host_bytes, 8 * kTile);
  EXPECT_LT(peak.grown(), figures.host_bytes + 8 * kTile) << "one region and small change";
  ASSERT_TRUE(peak.reset());
  millpond_refresh_args refresh{};
  refresh.header = {sizeof(refresh), MILLPOND_TYPE_REFRESH_ARGS};
  ASSERT_EQ(table().refresh_main(training.store, &refresh, &status), MILLPOND_OK) << status.text();
  EXPECT_LT(peak.grown(), 2 * kTile);
}

// Formats of less precision stay near fp32, also where unscaled fp16 would not.
TEST(Memory, R09_small_moments_stay_near_fp32) {
  const std::pair<const char*, double> kLimits[] = {
      {"bf16", 0.02}, {"fp16", 0.02}, {"fp8_e4m3", 0.2}, {"fp8_e5m2", 0.3}};
  for (const auto& [format, limit] : kLimits) {
    SCOPED_TRACE(format);
    TemporaryDirectory scratch;
    Job job(scratch.path(),
            std::string("\"tile_elements\": 4096, \"moments\": \"") + format + "\"");
    Training training(job, "s", {{"a", 9000, 0, 0}, {"n", 900, 0, 1, MILLPOND_DTYPE_FP32}});
    Status status;
    ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
    for (std::uint64_t number = 1; number <= 20; ++number) {
      Training::Step step = training.make_step(number);
      for (std::size_t i = 0; i < 2; ++i) {
        // Gradients whose squares leave fp16's range downwards.
        for (std::uint64_t e = 0; e < training.parameters[i].numel; ++e) {
          const float value = get(step.grads[i], MILLPOND_DTYPE_FP32, e);
          put(step.grads[i], MILLPOND_DTYPE_FP32, e, number == 17 ? value : value * 1e-4f);
        }
      }
      ASSERT_EQ(training.step(step, &status), MILLPOND_OK) << status.text();
      training.resident_step(step);
    }
    const std::vector<float> mains = training.read(0, MILLPOND_SEGMENT_MAIN);
    double worst = 0;
    for (std::size_t e = 0; e < mains.size(); ++e) {
      worst = std::max(worst, std::fabs(static_cast<double>(mains[e]) - training.plain[0].main[e]));
    }
    EXPECT_LT(worst, limit);
    EXPECT_GT(worst, 0.0) << "the format is not used";
  }
}

// R02: a checkpoint of step 0 sets the counters back to 0.
TEST(Memory, R02_B28_a_checkpoint_of_step_0_is_one) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 4096, \"host_memory_bytes\": 250000");
  Training training(job, "s", {{"a", 9000, 0, 0}, {"b", 900, 2, 1}});
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  const std::string path = scratch.path() + "/saved";
  millpond_io_args io = io_args(path);
  ASSERT_EQ(table().save_to(training.store, &io, &status), MILLPOND_OK) << status.text();
  const std::vector<PlainParameter> start = training.plain;
  training.train(1, 3);
  io.flags = 0;
  ASSERT_EQ(table().load_from(training.store, &io, &status), MILLPOND_OK) << status.text();
  training.plain = start;
  EXPECT_EQ(training.counter(0), 0u);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
  training.train(4, 8);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

}  // namespace
}  // namespace millpond::tests
