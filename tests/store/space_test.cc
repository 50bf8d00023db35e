// Drives that are full, and memory that is short.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "plugin/store/binding.h"
#include "plugin/store/host_memory.h"
#include "tests/store/small_filesystem.h"
#include "tests/store/training.h"

namespace millpond::tests {
namespace {

TEST(Space, B13_a_full_disk_is_an_error_at_bind_with_needed_and_free_bytes) {
  SmallFilesystem small;
  if (!small.mounted()) GTEST_SKIP() << "mounting a tmpfs is not allowed here: " << strerror(errno);
  Job job(small.path(), "\"tile_elements\": 4096");
  std::vector<Parameter> parameters;
  for (std::uint32_t i = 0; i < 8; ++i) {
    parameters.push_back({"p" + std::to_string(i), 1u << 17, 0, i});  // 1.5 MiB each
  }
  Training large(job, "large", parameters);
  Status status;
  ASSERT_EQ(large.bind(&status), MILLPOND_E_NO_SPACE) << status.text();
  EXPECT_EQ(status.wanted, 8u * (1u << 17) * 12) << status.text();
  EXPECT_GT(status.got, 0u);
  EXPECT_LE(status.got, 4u << 20);
  EXPECT_NE(std::string(status.message).find(small.path()), std::string::npos) << status.message;
  EXPECT_EQ(large.step(large.make_step(1), &status), MILLPOND_E_STATE);
  // What fits is served, by the same runtime.
  Training fits(job, "fits", {parameters[0]});
  ASSERT_EQ(fits.bind(&status), MILLPOND_OK) << status.text();
  fits.train(1, 3);
  EXPECT_EQ(fits.models_differ() + fits.state_differs(), "");
}

TEST(Space, B14_a_disk_that_is_filled_later_hurts_no_step) {
  SmallFilesystem small;
  if (!small.mounted()) GTEST_SKIP() << "mounting a tmpfs is not allowed here: " << strerror(errno);
  Job job(small.path(), "\"tile_elements\": 4096, \"host_memory_bytes\": 200000");
  Training training(job, "s", {{"a", 100000, 0, 0}});
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(1);
  small.fill();
  training.train(2, 5);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
  // A rebind that needs new files is refused and parks; the old layout still serves.
  const std::vector<Parameter> before = training.parameters;
  training.parameters[0].model = MILLPOND_DTYPE_FP16;
  training.parameters.push_back({"b", 50000, 0, 1});
  training.models.emplace_back(100000);
  training.plain.emplace_back(50000);
  EXPECT_EQ(training.bind(&status), MILLPOND_E_NO_SPACE) << status.text();
  training.parameters = before;
  training.models.pop_back();
  training.plain.pop_back();
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(6, 8);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

// A tree that stands for /proc and /sys.
class FakeMachine : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  plugin::AvailableMemory available() { return plugin::available_memory(root_.path()); }
  TemporaryDirectory root_;
};

constexpr std::uint64_t kMiB = 1 << 20;

TEST_F(FakeMachine, says_what_the_kernel_says) {
  put("/proc/meminfo", "MemTotal: 9999999 kB\nMemAvailable:    2048000 kB\n");
  EXPECT_EQ(available().bytes, 2048000ull * 1024);
  EXPECT_EQ(available().source, "MemAvailable");
}

TEST_F(FakeMachine, cgroup_v2_limits_and_its_ancestors_count) {
  put("/proc/meminfo", "MemAvailable: 2048000 kB\n");
  put("/proc/self/cgroup", "0::/user/job\n");
  put("/sys/fs/cgroup/user/job/memory.max", "max\n");
  put("/sys/fs/cgroup/user/job/memory.current", "1048576\n");
  EXPECT_EQ(available().source, "MemAvailable");
  put("/sys/fs/cgroup/user/memory.max", std::to_string(600 * kMiB) + "\n");
  put("/sys/fs/cgroup/user/memory.current", std::to_string(500 * kMiB) + "\n");
  put("/sys/fs/cgroup/user/memory.stat",
      "anon 1\ninactive_file " + std::to_string(300 * kMiB) + "\nactive_file 5\n");
  EXPECT_EQ(available().bytes, 400 * kMiB);
  EXPECT_NE(available().source.find("user/memory.max"), std::string::npos);
  put("/sys/fs/cgroup/user/job/memory.max", std::to_string(2 * kMiB) + "\n");
  EXPECT_EQ(available().bytes, kMiB);
  put("/sys/fs/cgroup/user/job/memory.current", std::to_string(3 * kMiB) + "\n");
  EXPECT_EQ(available().bytes, 0u);
}

TEST_F(FakeMachine, cgroup_v1_limits_count_also_where_the_path_is_the_hosts) {
  put("/proc/meminfo", "MemAvailable: 2048000 kB\n");
  put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/0123\n0::/\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(256 * kMiB) + "\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(64 * kMiB) + "\n");
  put("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1048576\n");
  EXPECT_EQ(available().bytes, 193 * kMiB);
}

TEST_F(FakeMachine, auto_takes_half_and_shares_it_among_the_ranks) {
  put("/proc/meminfo", "MemAvailable: 1048576 kB\n");
  plugin::Options options;
  options.local_size = 4;
  const plugin::MemoryChoice choice = plugin::choose_host_memory(options, 0, root_.path());
  EXPECT_EQ(choice.cap, 128 * kMiB);
  EXPECT_NE(choice.sentence.find("4 local rank(s)"), std::string::npos) << choice.sentence;
  options.host_memory_bytes = 77 * kMiB;
  EXPECT_EQ(plugin::choose_host_memory(options, 0, root_.path()).cap, 77 * kMiB);
}

// The kernel would give more than there is, and then kill the process.
TEST_F(FakeMachine, more_than_there_is_is_not_taken_even_when_asked_for) {
  put("/proc/meminfo", "MemAvailable: 2048000 kB\n");
  put("/proc/self/cgroup", "0::/job\n");
  put("/sys/fs/cgroup/job/memory.max", std::to_string(600 * kMiB) + "\n");
  put("/sys/fs/cgroup/job/memory.current", std::to_string(100 * kMiB) + "\n");
  plugin::Options options;
  options.host_memory_bytes = 4096 * kMiB;
  const plugin::MemoryChoice choice = plugin::choose_host_memory(options, 0, root_.path());
  EXPECT_EQ(choice.cap, 500 * kMiB / 8 * 7);
  EXPECT_NE(choice.sentence.find("4096 MiB asked for"), std::string::npos) << choice.sentence;
  EXPECT_NE(choice.sentence.find("job/memory.max"), std::string::npos) << choice.sentence;
  // Pages of buffered files need room beside it, at most up to half.
  EXPECT_EQ(plugin::choose_host_memory(options, 64 * kMiB, root_.path()).cap,
            500 * kMiB / 8 * 7 - 64 * kMiB);
  EXPECT_EQ(plugin::choose_host_memory(options, 400 * kMiB, root_.path()).cap, 250 * kMiB);
}

TEST_F(FakeMachine, that_says_nothing_is_an_error) {
  EXPECT_THROW(plugin::choose_host_memory({}, 0, root_.path()), Error);
}

TEST(Memory, auto_takes_no_more_than_the_state_and_says_so) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 4096");
  Training training(job, "s", {{"a", 100000, 0, 0}});
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_EQ(training.report.plan().host_bytes(), 25u * 4096 * 12);
  EXPECT_TRUE(job.log_has("host_memory_bytes auto")) << "one line says what was chosen";
}

// What the engine has under way passes the page cache, and the kernel cannot drop it before it is
// written.
TEST(Memory, buffered_files_leave_room_for_a_transfer_in_each_place_of_the_queue) {
  for (const std::uint64_t depth : {8u, 64u}) {
    TemporaryDirectory scratch;
    Job job(scratch.path(),
            "\"tile_elements\": 4096, \"direct\": false, \"io_engine\": \"threads\", "
            "\"host_memory_bytes\": 1125899906842624, \"queue_depth\": " +
                std::to_string(depth));
    Training training(job, "s", {{"a", 100000, 0, 0}});
    Status status;
    ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
    std::uint64_t cap = 0, asked = 0, available = 0;  // MiB
    for (const std::string& line : job.log) {
      if (std::sscanf(line.c_str(),
                      "host_memory_bytes: at most %" SCNu64 " MiB of the %" SCNu64
                      " MiB asked for, of %" SCNu64 " MiB available",
                      &cap, &asked, &available) == 3) {
        break;
      }
    }
    ASSERT_EQ(asked, 1u << 30) << "no line says what was chosen";
    if (available < 1024) GTEST_SKIP() << "1 GiB of free memory is needed";
    const std::uint64_t left = available - available / 8 - cap;
    EXPECT_GE(left + 2, depth * 4);
    EXPECT_LE(left, depth * 4 + 2);
  }
}

TEST(Memory, too_little_for_two_tiles_names_the_option) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 65536, \"host_memory_bytes\": 1000000");
  Training training(job, "s", {{"a", 200000, 0, 0}});
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_E_MEMORY) << status.text();
  EXPECT_NE(std::string(status.message).find("host_memory_bytes"), std::string::npos)
      << status.text();
  EXPECT_EQ(training.step(training.make_step(1), &status), MILLPOND_E_STATE);
}

// What the BindReport expects is what steps move.
TEST(Traffic, expected_bytes_are_the_moved_bytes) {
  TemporaryDirectory scratch;
  Job job(scratch.path(),
          "\"tile_elements\": 4096, \"host_memory_bytes\": " + std::to_string(12 * 4096 * 12));
  Training training(job, "s", {{"a", 30 * 4096, 0, 0}});
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  Training::Step step = training.make_step(2);
  for (auto& grad : step.has_grad) grad = 1;
  step.pointers[0] = step.grads[0].data();
  std::uint64_t read = 0, written = 0;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(training.step(step, &status), MILLPOND_OK) << status.text();
    millpond_step_figures figures{};
    figures.header = {sizeof(figures), MILLPOND_TYPE_STEP_FIGURES};
    ASSERT_EQ(reports().last_step(training.store, &figures, &status), MILLPOND_OK);
    if (i < 4) continue;
    read += figures.bytes_read;
    written += figures.bytes_written;
  }
  const v1::Plan& plan = training.report.plan();
  EXPECT_EQ(plan.read_bytes_per_step(), (30 - plan.tier_tiles()) * 4096 * 12);
  EXPECT_EQ(read, 4 * plan.read_bytes_per_step());
  EXPECT_EQ(written, 4 * plan.write_bytes_per_step());
}

}  // namespace
}  // namespace millpond::tests
