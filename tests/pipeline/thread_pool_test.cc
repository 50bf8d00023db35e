#include "plugin/core/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace millpond::plugin {
namespace {

TEST(ThreadPool, every_index_runs_exactly_once_for_all_counts_and_threads) {
  for (const std::uint32_t threads : {0u, 1u, 2u, 3u, 8u}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads == 0 ? 1 : threads);
    for (const std::size_t count : {0, 1, 2, 3, 7, 8, 9, 64, 1000}) {
      std::vector<int> hits(count, 0);  // plain ints: TSan sees an index that runs twice
      pool.run(count, [&](std::uint64_t i) { ++hits[i]; });
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(hits[i], 1) << i << " of " << count;
    }
  }
}

TEST(ThreadPool, rounds_in_quick_succession_never_mix) {
  ThreadPool pool(4);
  std::vector<std::uint64_t> values(16, 0);
  for (std::uint64_t round = 1; round <= 5000; ++round) {
    const std::uint64_t count = 1 + round % values.size();
    pool.run(count, [&](std::uint64_t i) { values[i] = round * 100 + i; });
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(values[i], round * 100 + i);
  }
}

TEST(ThreadPool, workers_that_went_to_sleep_are_woken) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> sum{0};
    pool.run(100, [&](std::uint64_t) { sum.fetch_add(1); });
    EXPECT_EQ(sum.load(), 100);
  }
}

TEST(ThreadPool, works_side_by_side) {
  // Each body waits for the other: only two threads can finish this.
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  pool.run(2, [&](std::uint64_t) {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 2);
}

TEST(ThreadPool, the_failure_of_the_smallest_index_is_thrown_when_all_have_come_to_rest) {
  for (const std::uint32_t threads : {1u, 4u}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 20; ++round) {
      std::vector<std::atomic<bool>> ran(64);
      std::atomic<int> inside{0};
      try {
        pool.run_or_throw(ran.size(), [&](std::uint64_t i) {
          ++inside;
          ran[i] = true;
          --inside;
          if (i == 17 || i == 18 || i == 40) throw i;
        });
        FAIL() << "nothing was thrown";
      } catch (const std::uint64_t index) {
        EXPECT_EQ(index, 17u);
      }
      EXPECT_EQ(inside.load(), 0);
      for (std::size_t i = 0; i <= 17; ++i) EXPECT_TRUE(ran[i]) << i;
      EXPECT_FALSE(ran[63] && threads == 1) << "begun after a failure";
    }
    std::atomic<int> sum{0};
    pool.run_or_throw(100, [&](std::uint64_t) { ++sum; });
    EXPECT_EQ(sum.load(), 100);
  }
}

TEST(ThreadPool, workers_block_every_signal_and_the_caller_keeps_its_mask) {
  sigset_t before;
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  ThreadPool pool(2);
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> arrived{0};
  std::atomic<bool> blocked{false};
  pool.run(2, [&](std::uint64_t) {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
    if (std::this_thread::get_id() == caller) return;
    sigset_t mine;
    pthread_sigmask(SIG_SETMASK, nullptr, &mine);
    blocked = sigismember(&mine, SIGALRM) == 1 && sigismember(&mine, SIGINT) == 1;
  });
  EXPECT_TRUE(blocked.load());
  for (const int signal : {SIGALRM, SIGINT, SIGTERM}) {
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal));
  }
}

}  // namespace
}  // namespace millpond::plugin
