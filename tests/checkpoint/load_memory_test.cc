// What a load takes of memory: no more than 64 MiB beyond what the process had, the pinned region
// (the pipeline's ring and the tier) included, whatever the state's size is.
#include <gtest/gtest.h>

#include "tests/checkpoint/in_memory.h"
#include "tests/checkpoint/saved_training.h"
#include "tests/store/campaign.h"
#include "tests/store/peak_memory.h"

namespace millpond::tests {
namespace {

constexpr std::uint64_t kElements = 8u << 20;  // 96 MiB of state: a whole copy would show
constexpr std::uint64_t kRegion = 48u << 20;   // "host_memory_bytes"
constexpr std::uint64_t kMostGrown = 64u << 20;

class LoadMemory : public ::testing::Test {
 protected:
  static std::string options(const char* moments) {
    return "\"host_memory_bytes\": " + std::to_string(kRegion) + ", \"moments\": \"" + moments +
           "\"";
  }
  void save_one(const char* moments) {
    Job job(scratch_.path(), options(moments));
    Training training(job, "s", {{"a", kElements, 0, 0}});
    training.plain.clear();
    ASSERT_EQ(training.bind(&status_), MILLPOND_OK) << status_.text();
    ASSERT_EQ(training.step(training.make_step(1), &status_), MILLPOND_OK) << status_.text();
    ASSERT_EQ(save(training, saved_.path(), &status_), MILLPOND_OK) << status_.text();
  }
  // Loads into a store that has taken a step: its region is all in use.
  void expect_small(const char* moments, std::uint64_t flags) {
    Job job(scratch_.path(), options(moments));
    Training training(job, "s", {{"a", kElements, 0, 0}}, 2);
    training.plain.clear();
    ASSERT_EQ(training.bind(&status_), MILLPOND_OK) << status_.text();
    ASSERT_EQ(training.step(training.make_step(1), &status_), MILLPOND_OK) << status_.text();
    millpond_runtime_figures figures{};
    figures.header = {sizeof(figures), MILLPOND_TYPE_RUNTIME_FIGURES};
    ASSERT_EQ(reports().runtime(job.runtime, &figures, &status_), MILLPOND_OK);
    EXPECT_LE(figures.host_bytes, kRegion);
    PeakMemory peak;
    if (!peak.reset()) GTEST_SKIP() << "/proc/self/clear_refs cannot be written here";
    ASSERT_EQ(load(training, saved_.path(), &status_, flags), MILLPOND_OK) << status_.text();
    const std::uint64_t grown = peak.grown();
    std::printf(
        "a load of %.0f MiB with a region of %.0f MiB: wanted at most %.0f MiB more, got "
        "%.1f MiB\n",
        static_cast<double>(kElements) * 12 / (1 << 20), kRegion / 1048576.0,
        kMostGrown / 1048576.0, static_cast<double>(grown) / (1 << 20));
    EXPECT_LE(grown, kMostGrown);
  }

  const InMemory memory_{1u << 30};
  TemporaryDirectory scratch_, saved_;
  Status status_;
};

TEST_F(LoadMemory, is_bounded_also_where_formats_are_converted) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's shadow memory hides what is measured";
  save_one("fp32");
  expect_small("fp32", 0);
  expect_small("bf16", MILLPOND_IO_CONVERT);
}

}  // namespace
}  // namespace millpond::tests
