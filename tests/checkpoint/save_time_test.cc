// How long save_to keeps a training waiting, with a state of the size that matters. Run by
// tests/campaign/save_time.sh on a real drive and a quiet machine.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "tests/checkpoint/saved_training.h"
#include "tests/store/repeated_store.h"

namespace millpond::tests {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPeriod = 40 * 4096;
constexpr double kMostForeground = 0.1;  // seconds
// How many times as long as usual the step after a save may take, without the wait for dirty tiles:
// of a step that the drive bounds (first writes into fresh extents are slower), and of any other.
constexpr double kDriveBound = 1.5, kNotDriveBound = 1.1;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string from_environment(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
  return value == nullptr ? otherwise : value;
}

// Bytes a second of plain direct writes into reserved space, one after another.
double write_rate(const std::string& directory) {
  constexpr std::uint64_t kAtOnce = 8u << 20, kBytes = 1u << 30;
  const int file = open((directory + "/rate").c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
  EXPECT_GE(file, 0);
  EXPECT_EQ(posix_fallocate(file, 0, kBytes), 0);
  const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(4096, kAtOnce), std::free);
  std::fill_n(static_cast<char*>(memory.get()), kAtOnce, 'x');
  const auto begin = Clock::now();
  for (std::uint64_t at = 0; at < kBytes; at += kAtOnce) {
    EXPECT_EQ(pwrite(file, memory.get(), kAtOnce, static_cast<off_t>(at)),
              static_cast<ssize_t>(kAtOnce));
  }
  EXPECT_EQ(fdatasync(file), 0);
  const double rate = static_cast<double>(kBytes) / since(begin);
  close(file);
  unlink((directory + "/rate").c_str());
  return rate;
}

// SAVE_GB: bytes of state / 1e9; SAVE_TIER_MB: the tier; SAVE_TO: a directory on another filesystem
// for the checkpoint, which is copied there.
TEST(Campaign, SaveTime_foreground_is_a_tenth_of_a_second_whatever_the_size) {
  const std::string gigabytes = from_environment("SAVE_GB", "12");
  const auto elements =
      static_cast<std::uint64_t>(std::atof(gigabytes.c_str()) * 1e9 / 12) / kPeriod * kPeriod;
  const std::string tier = from_environment("SAVE_TIER_MB", "2000");
  const TemporaryDirectory small, large, here;
  const std::string elsewhere = from_environment("SAVE_TO", "");
  const std::string to = (elsewhere.empty() ? here.path() : elsewhere) + "/state";
  const double rate = write_rate(large.path());
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
  const double usual = steps[1];
  millpond_step_figures figures{};
  figures.header = {sizeof(figures), MILLPOND_TYPE_STEP_FIGURES};
  ASSERT_EQ(reports().last_step(store.store(), &figures, &status), MILLPOND_OK);
  millpond_runtime_figures memory{};
  memory.header = {sizeof(memory), MILLPOND_TYPE_RUNTIME_FIGURES};
  ASSERT_EQ(reports().runtime(job.runtime, &memory, &status), MILLPOND_OK);
  const bool drive_bound = figures.bytes_read + figures.bytes_written > 0;
  const double factor = drive_bound ? kDriveBound : kNotDriveBound;
  const double dirty = static_cast<double>(std::min(memory.host_bytes, elements * 12));
  const double most = factor * usual + dirty / rate;
  std::printf(
      "state %.2f GB, region %.2f GB, %s; usual step %.2f s (%.2f GB read and written); the "
      "drive writes %.2f GB/s\n",
      static_cast<double>(elements) * 12e-9, static_cast<double>(memory.host_bytes) * 1e-9,
      drive_bound ? "drive-bound" : "not drive-bound", usual,
      static_cast<double>(figures.bytes_read + figures.bytes_written) * 1e-9, rate * 1e-9);
  for (int i = 0; i < 3; ++i) {
    const millpond_io_args args = io_args(to, MILLPOND_IO_COMMIT | MILLPOND_IO_BACKGROUND);
    const auto begin = Clock::now();
    ASSERT_EQ(table().save_to(store.store(), &args, &status), MILLPOND_OK) << status.text();
    const double foreground = since(begin);
    const double next = step();
    ASSERT_EQ(checkpoints().wait(store.store(), &status), MILLPOND_OK) << status.text();
    std::printf("save_to: wanted at most %.1f s, got %.4f s; next step: ", kMostForeground,
                foreground);
    if (elsewhere.empty()) {
      std::printf(
          "wanted at most %.2f s (%.1f x usual, and %.2f GB of dirty tiles), got %.2f s "
          "(%.2f x)",
          most, factor, dirty * 1e-9, next, next / usual);
      EXPECT_LE(next, most);
    } else {
      std::printf("%.2f s (%.2f x) while the copy was made", next, next / usual);
    }
    std::printf("; all written after %.2f s\n", since(begin));
    std::fflush(stdout);
    EXPECT_LE(foreground, kMostForeground);
    EXPECT_TRUE(job.log_has(elsewhere.empty() ? " 0 copied" : " 0 linked or cloned"));
    step();
  }
  EXPECT_EQ(store.differs_at(0, 6000), "");
  EXPECT_EQ(store.differs_at(elements / 2, 6000), "");
}

}  // namespace
}  // namespace millpond::tests
