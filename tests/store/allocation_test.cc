// A step allocates nothing, on any thread: malloc of the whole process goes through the counter
// below, the plugin's included.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/store/training.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<std::uint64_t> allocations{0};
void count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1);
}
}  // namespace

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

__attribute__((visibility("default"))) void* malloc(std::size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void* calloc(std::size_t count_, std::size_t bytes) {
  count();
  return __libc_calloc(count_, bytes);
}
__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t bytes) {
  count();
  return __libc_realloc(memory, bytes);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment,
                                                           std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
}

namespace millpond::tests {
namespace {

// The line of the last step, without allocating.
char last_line[600];
void note_line(void*, std::uint32_t level, millpond_str line) {
  if (level != MILLPOND_LOG_INFO || line.len >= sizeof(last_line)) return;
  std::memcpy(last_line, line.ptr, line.len);
  last_line[line.len] = '\0';
}

class Allocation : public ::testing::TestWithParam<const char*> {};

TEST_P(Allocation, a_step_makes_none) {
  TemporaryDirectory scratch;
  Job job(scratch.path(),
          std::string("\"tile_elements\": 4096, \"update_threads\": 2, "
                      "\"host_memory_bytes\": 400000, \"io_engine\": \"") +
              GetParam() + "\"",
          [](millpond_host_api& api) { api.log = note_line; });
  Training training(job, "s",
                    {{"a", 60000, 0, 0},
                     {"b", 9000, 2, 1, MILLPOND_DTYPE_FP16, MILLPOND_DTYPE_BF16},
                     {"n", 9000, 0, 2, MILLPOND_DTYPE_FP32}});
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  counting = true;
  void* volatile some = std::malloc(100);
  std::free(some);
  counting = false;
  ASSERT_GT(allocations.exchange(0), 0u) << "the counter itself does not work";
  TemporaryDirectory saved;
  for (std::uint64_t number = 1; number <= 8; ++number) {
    if (number == 5) {
      // The steps after a save write into new files and give up the old ones.
      const std::string path = saved.path();
      millpond_io_args io = io_args(path);
      ASSERT_EQ(table().save_to(training.store, &io, &status), MILLPOND_OK) << status.text();
    }
    const Training::Step step = training.make_step(number);
    const millpond_step_args args = step.args();
    counting = true;
    const std::int32_t code = table().step(training.store, &args, &status);
    counting = false;
    ASSERT_EQ(code, MILLPOND_OK) << status.text();
    EXPECT_EQ(allocations.exchange(0), 0u) << "in step " << number;
    const std::string beginning = "step " + std::to_string(number) + " of s: ";
    EXPECT_EQ(std::string(last_line).compare(0, beginning.size(), beginning), 0) << last_line;
    EXPECT_NE(std::string(last_line).find("bound by "), std::string::npos) << last_line;
    training.resident_step(step);
  }
  EXPECT_EQ(training.models_differ(), "");
}

INSTANTIATE_TEST_SUITE_P(Engines, Allocation, ::testing::Values("auto", "threads"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace millpond::tests
