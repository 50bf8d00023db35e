// How long save_to keeps a training waiting, with a state of the size that matters. Run by
// tests/campaign/save_time.sh on a real drive and a quiet machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/checkpoint/saved_training.h"
#include "tests/store/repeated_store.h"

namespace millpond::tests {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPeriod = 40 * 4096;
constexpr double kMostForeground = 0.1;  // seconds

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string from_environment(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
  return value == nullptr ? otherwise : value;
}

// SAVE_GB: bytes of state / 1e9; SAVE_TIER_MB: the tier; SAVE_TO: directory of the checkpoint.
TEST(Campaign, SaveTime_foreground_is_a_tenth_of_a_second_whatever_the_size) {
  const std::string gigabytes = from_environment("SAVE_GB", "12");
  const auto elements =
      static_cast<std::uint64_t>(std::atof(gigabytes.c_str()) * 1e9 / 12) / kPeriod * kPeriod;
  const std::string tier = from_environment("SAVE_TIER_MB", "2000");
  const TemporaryDirectory small, large, here;
  const std::string to = from_environment("SAVE_TO", here.path().c_str()) + "/state";
  Job other(small.path(), "\"tile_elements\": 4096, \"host_memory_bytes\": 400000");
  Training period(other, "period", {{"a", kPeriod, 0, 0}});
  Status status;
  ASSERT_EQ(period.bind(&status), MILLPOND_OK) << status.text();
  Job job(large.path(), "\"host_memory_bytes\": " + tier + "000000");
  RepeatedStore store(job, period, elements);
  ASSERT_EQ(store.bind(&status), MILLPOND_OK) << status.text();
  std::uint64_t number = 0;
  const auto step = [&] {
    const auto begin = Clock::now();
    EXPECT_EQ(store.step(++number, &status), MILLPOND_OK) << status.text();
    return since(begin);
  };
  step();
  std::vector<double> steps;
  for (int i = 0; i < 3; ++i) steps.push_back(step());
  std::sort(steps.begin(), steps.end());
  std::printf("state %.2f GB, tier %s MB, usual step %.2f s\n",
              static_cast<double>(elements) * 12e-9, tier.c_str(), steps[1]);
  for (int i = 0; i < 3; ++i) {
    millpond_io_args args{};
    args.header = {sizeof(args), MILLPOND_TYPE_IO_ARGS};
    args.path = str(to);
    args.flags = MILLPOND_IO_COMMIT | MILLPOND_IO_BACKGROUND;
    const auto begin = Clock::now();
    ASSERT_EQ(table().save_to(store.store(), &args, &status), MILLPOND_OK) << status.text();
    const double foreground = since(begin);
    const double next = step();
    ASSERT_EQ(checkpoints().wait(store.store(), &status), MILLPOND_OK) << status.text();
    std::printf("save_to %.4f s, next step %.2f s (%.2f x), all written after %.2f s: %s\n",
                foreground, next, next / steps[1], since(begin),
                job.log.empty() ? "" : job.log.back().c_str());
    EXPECT_LE(foreground, kMostForeground);
    step();
  }
  EXPECT_EQ(store.differs_at(0, 6000), "");
  EXPECT_EQ(store.differs_at(elements / 2, 6000), "");
}

}  // namespace
}  // namespace millpond::tests
