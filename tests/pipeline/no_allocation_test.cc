// A step allocates nothing, opens nothing and starts no thread: malloc and its kin, open and
// pthread_create of this program are counted.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <new>

#include "tests/pipeline/model.h"
#include "tests/sanitized.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
std::atomic<int> opens{0};
std::atomic<int> threads{0};

[[maybe_unused]] void count(std::atomic<int>* counter) {
  if (counting.load(std::memory_order_relaxed)) counter->fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

#if !MILLPOND_ADDRESS_SANITIZER && !MILLPOND_THREAD_SANITIZER
extern "C" {
// The C library's own names for what is replaced here.
// NOLINTBEGIN(bugprone-reserved-identifier)
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
// NOLINTEND(bugprone-reserved-identifier)
__attribute__((visibility("default"))) void* malloc(std::size_t size) {
  count(&allocations);
  return __libc_malloc(size);
}
__attribute__((visibility("default"))) void* calloc(std::size_t n, std::size_t size) {
  count(&allocations);
  return __libc_calloc(n, size);
}
__attribute__((visibility("default"))) void* realloc(void* p, std::size_t size) {
  count(&allocations);
  return __libc_realloc(p, size);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t a, std::size_t size) {
  count(&allocations);
  return __libc_memalign(a, size);
}
__attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  count(&opens);
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return openat(AT_FDCWD, path, flags, mode);
}
__attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                          const pthread_attr_t* attributes,
                                                          void* (*start)(void*), void* argument) {
  count(&threads);
  using Function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, start, argument);
}
}
#endif

namespace millpond::plugin {
namespace {

TEST(NoAllocation, steps_on_every_engine) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  for (const char* kind : {"threads", "auto"}) {
    for (const std::uint64_t places : {4, 11, 60}) {
      ModelStore store(small_plan(40), "dense");
      ThreadPool pool(2);
      Engine engine(make_raw_engine(kind, 16).raw, std::chrono::seconds(30));
      PipelineOptions options;
      options.host_memory_bytes = places * 3 * 4096 * 4;
      options.ring_bytes = 0;
      Pipeline pipeline(options, engine, pool);
      StreamedState* const states[] = {store.state.get()};
      pipeline.plan_tier(states);
      const std::vector<std::uint32_t> tiles = all_tiles(store.state->plan());
      for (int round = 0; round < 5; ++round) {
        CallOnTile work([&](TileView& view) {
          view.memory[8] = std::byte{1};
          view.dirty = true;
          view.moments_present = true;
        });
        millpond_step_figures figures{};
        allocations = opens = threads = 0;
        counting = true;
        pipeline.visit(*store.state, tiles, round == 0 ? Access::kOverwrite : Access::kUpdate, work,
                       &figures);
        counting = false;
        EXPECT_EQ(allocations, 0) << kind << " places " << places << " round " << round;
        EXPECT_EQ(opens, 0);
        EXPECT_EQ(threads, 0);
      }
    }
  }
}

TEST(NoAllocation, the_hooks_count) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  allocations = opens = threads = 0;
  counting = true;
  delete new std::uint64_t(3);
  void* const memory = std::malloc(64);
  const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ThreadPool pool(2);
  counting = false;
  std::free(memory);
  close(fd);
  EXPECT_GE(allocations, 2);
  EXPECT_EQ(opens, 1);
  EXPECT_EQ(threads, 1);
}

}  // namespace
}  // namespace millpond::plugin
