// How long save_to keeps a training waiting, with a state of the size that matters. Run by
// tests/campaign/save_time.sh on a real drive and a quiet machine.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

// Seconds that the drive needs to take a GiB into fresh reserved space, by direct writes of which
// several are under way.
class Drive {
 public:
  static constexpr std::uint64_t kBytes = 1u << 30;

  explicit Drive(std::string directory) : path_(std::move(directory) + "/rate") {}
  double seconds() const {
    const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
    EXPECT_GE(file, 0);
    EXPECT_EQ(posix_fallocate(file, 0, kBytes), 0);
    const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(4096, kAtOnce),
                                                        std::free);
    std::fill_n(static_cast<char*>(memory.get()), kAtOnce, 'x');
    std::atomic<std::uint64_t> next{0};
    const auto begin = Clock::now();
    std::vector<std::thread> writers;
    for (int i = 0; i < 4; ++i) {
      writers.emplace_back([&] {
        for (std::uint64_t at = 0; (at = next.fetch_add(kAtOnce)) < kBytes;) {
          EXPECT_EQ(pwrite(file, memory.get(), kAtOnce, static_cast<off_t>(at)),
                    static_cast<ssize_t>(kAtOnce));
        }
      });
    }
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(fdatasync(file), 0);
    const double took = since(begin);
    close(file);
    unlink(path_.c_str());
    return took;
  }

 private:
  static constexpr std::uint64_t kAtOnce = 4u << 20;
  std::string path_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A big store that steps beside its small oracle.
class Trained {
 public:
  Trained(const std::string& small, const std::string& large, std::uint64_t elements,
          const std::string& options)
      : other_(small, "\"tile_elements\": 4096, \"host_memory_bytes\": 400000"),
        period_(other_, "period", {{"a", kPeriod, 0, 0}}),
        job_(large, options),
        store_(job_, period_, elements) {}
  std::int32_t bind(Status* status) {
    const std::int32_t code = period_.bind(status);
    return code == MILLPOND_OK ? store_.bind(status) : code;
  }
  double step() {  // seconds
    Status status;
    const auto begin = Clock::now();
    EXPECT_EQ(store_.step(++number_, &status), MILLPOND_OK) << status.text();
    return since(begin);
  }
  millpond_step_figures figures() {
    Status status;
    millpond_step_figures figures{};
    figures.header = {sizeof(figures), MILLPOND_TYPE_STEP_FIGURES};
    EXPECT_EQ(reports().last_step(store_.store(), &figures, &status), MILLPOND_OK);
    return figures;
  }
  Job& job() { return job_; }
  RepeatedStore& store() { return store_; }

 private:
  Job other_;
  Training period_;
  Job job_;
  RepeatedStore store_;
  std::uint64_t number_ = 0;
};

// SAVE_GB: bytes of state / 1e9; SAVE_TIER_MB: the tier; SAVE_TO: a directory on another filesystem
// for the checkpoint, which is copied there.
//
// The step after a save finds in the tier what it has to wait for: every byte there is dirty, since
// every step changes all. A drive's rate drifts: each save has that of the moment, before and after
// it, and usual steps on both sides; the median of the saves is judged.
TEST(Campaign, SaveTime_foreground_is_a_tenth_of_a_second_whatever_the_size) {
  const std::string gigabytes = from_environment("SAVE_GB", "12");
  const auto elements =
      static_cast<std::uint64_t>(std::atof(gigabytes.c_str()) * 1e9 / 12) / kPeriod * kPeriod;
  const std::string tier = from_environment("SAVE_TIER_MB", "2000");
  const TemporaryDirectory small, large, here;
  const std::string elsewhere = from_environment("SAVE_TO", "");
  const std::string to = (elsewhere.empty() ? here.path() : elsewhere) + "/state";
  const Drive drive(large.path());
  Trained trained(small.path(), large.path(), elements,
                  "\"host_memory_bytes\": " + tier + "000000");
  Status status;
  ASSERT_EQ(trained.bind(&status), MILLPOND_OK) << status.text();
  trained.step();
  trained.step();
  double before = trained.step();
  const millpond_step_figures usual = trained.figures();
  const std::uint64_t moved = usual.bytes_read + usual.bytes_written;
  const double factor = moved > 0 ? kDriveBound : kNotDriveBound;
  std::printf("state %.2f GB, %.2f GB read and written by a step: %s\n",
              static_cast<double>(elements) * 12e-9, static_cast<double>(moved) * 1e-9,
              moved > 0 ? "drive-bound" : "not drive-bound");
  double drive_before = drive.seconds();
  std::vector<double> beyond;
  for (int i = 0; i < 3; ++i) {
    const millpond_io_args args = io_args(to, MILLPOND_IO_COMMIT | MILLPOND_IO_BACKGROUND);
    const auto begin = Clock::now();
    ASSERT_EQ(table().save_to(trained.store().store(), &args, &status), MILLPOND_OK)
        << status.text();
    const double foreground = since(begin);
    const double next = trained.step();
    const auto dirty = static_cast<double>(trained.figures().bytes_from_tier);
    ASSERT_EQ(checkpoints().wait(trained.store().store(), &status), MILLPOND_OK) << status.text();
    const double all = since(begin);
    const double drive_after = drive.seconds();
    const double after = trained.step();
    const double rate = Drive::kBytes / ((drive_before + drive_after) / 2);
    const double wait = dirty / rate;
    beyond.push_back((next - wait) / ((before + after) / 2));
    std::printf(
        "save_to %.4f s; next step %.2f s, of which %.2f s for %.2f GB of dirty tiles at %.2f "
        "GB/s: beyond that %.2f x the steps beside it, %.2f s and %.2f s; all written after %.2f "
        "s\n",
        foreground, next, wait, dirty * 1e-9, rate * 1e-9, beyond.back(), before, after, all);
    std::fflush(stdout);
    EXPECT_LE(foreground, kMostForeground);
    EXPECT_TRUE(trained.job().log_has(elsewhere.empty() ? " 0 copied" : " 0 linked or cloned"));
    before = after;
    drive_before = drive_after;
  }
  std::printf("save_to: wanted at most %.1f s each time\n", kMostForeground);
  if (elsewhere.empty()) {
    std::printf("next step without the wait: wanted at most %.1f x, got %.2f x (median)\n", factor,
                median(beyond));
    EXPECT_LE(median(beyond), factor);
  }
  EXPECT_EQ(trained.store().differs_at(0, 6000), "");
  EXPECT_EQ(trained.store().differs_at(elements / 2, 6000), "");
}

}  // namespace
}  // namespace millpond::tests
