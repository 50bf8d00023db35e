#include "plugin/core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "millpond/base.h"
#include "millpond/error.hpp"
#include "plugin/core/blocked_signals.h"

namespace millpond::plugin {
namespace {

// One claim word holds the round and the next index, so that a worker that was delayed since an
// older round cannot take an index of the present one by mistake.
constexpr std::uint64_t kIndexMask = 0xffff'ffffull;
constexpr std::uint64_t kClosed = kIndexMask;            // no index is ever this large
constexpr std::uint64_t kLargestRound = kIndexMask - 1;  // larger counts are cut into rounds

// About 20 us: longer than the gap between the checksum and the update of one tile, far shorter
// than a wait for the drive.
constexpr int kSpins = 400;

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::State {
  alignas(64) std::atomic<std::uint32_t> round{0};  // workers sleep on it
  std::atomic<bool> stop{false};
  // The round in progress. A worker reads these after `claim` and uses them only when its claim
  // succeeded, which proves that the round was still open.
  std::atomic<void (*)(void*, std::uint64_t)> body{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<std::uint64_t> first{0};  // index of the round's 0
  std::atomic<std::uint64_t> count{0};
  std::vector<std::thread> workers;
  alignas(64) std::atomic<std::uint32_t> done{0};         // the caller sleeps on it
  alignas(64) std::atomic<std::uint64_t> claim{kClosed};  // round << 32 | next index

  void take_indices(std::uint32_t current);
  void work();
  void finish();
  void run_round(std::uint64_t begin, std::uint64_t size, void (*call)(void*, std::uint64_t),
                 void* with);
};

void ThreadPool::State::take_indices(std::uint32_t current) {
  std::uint64_t seen = claim.load(std::memory_order_acquire);
  for (;;) {
    const std::uint64_t index = seen & kIndexMask;
    const std::uint64_t size = count.load(std::memory_order_acquire);
    if (seen >> 32 != current || index == kClosed || index >= size) return;
    const auto call = body.load(std::memory_order_acquire);
    void* const with = context.load(std::memory_order_acquire);
    const std::uint64_t offset = first.load(std::memory_order_acquire);
    if (!claim.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      continue;
    }
    call(with, offset + index);
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == size) done.notify_one();
    seen = claim.load(std::memory_order_acquire);
  }
}

void ThreadPool::State::work() {
  std::uint32_t seen = 0;
  for (;;) {
    std::uint32_t now = round.load(std::memory_order_acquire);
    for (int spin = 0; now == seen && spin < kSpins; ++spin) {
      pause_briefly();
      now = round.load(std::memory_order_acquire);
    }
    if (now == seen) {
      round.wait(seen, std::memory_order_acquire);
      continue;
    }
    seen = now;
    if (stop.load(std::memory_order_acquire)) return;
    take_indices(seen);
  }
}

void ThreadPool::State::run_round(std::uint64_t begin, std::uint64_t size,
                                  void (*call)(void*, std::uint64_t), void* with) {
  // The claim word is closed here: no worker acts on what is half written.
  const std::uint32_t current = round.load(std::memory_order_relaxed) + 1;
  body.store(call, std::memory_order_release);
  context.store(with, std::memory_order_release);
  first.store(begin, std::memory_order_release);
  count.store(size, std::memory_order_release);
  done.store(0, std::memory_order_release);
  claim.store(std::uint64_t{current} << 32, std::memory_order_release);
  round.store(current, std::memory_order_release);
  round.notify_all();
  take_indices(current);
  const auto wanted = static_cast<std::uint32_t>(size);
  std::uint32_t finished = done.load(std::memory_order_acquire);
  for (int spin = 0; finished != wanted; ++spin) {
    if (spin < kSpins) {
      pause_briefly();
    } else {
      done.wait(finished, std::memory_order_acquire);
    }
    finished = done.load(std::memory_order_acquire);
  }
  claim.store(std::uint64_t{current} << 32 | kClosed, std::memory_order_release);
}

void ThreadPool::State::finish() {
  stop.store(true, std::memory_order_release);
  round.fetch_add(1, std::memory_order_acq_rel);
  round.notify_all();
  for (std::thread& worker : workers) worker.join();
}

ThreadPool::ThreadPool(std::uint32_t threads) : state_(std::make_unique<State>()) {
  const BlockedSignals blocked;
  const std::uint32_t started = std::max<std::uint32_t>(threads, 1) - 1;
  state_->workers.reserve(started);
  try {
    for (std::uint32_t i = 0; i < started; ++i) {
      state_->workers.emplace_back([state = state_.get()] { state->work(); });
    }
  } catch (const std::system_error& failure) {
    const std::uint64_t got = state_->workers.size() + 1;
    state_->finish();
    throw Error(MILLPOND_E_MEMORY, "start update threads", "the system refused another thread")
        .field("options.update_threads")
        .want(threads, got)
        .os(failure.code().value())
        .remedy("Set update_threads lower, or raise the limit of processes (ulimit -u).");
  }
}

ThreadPool::~ThreadPool() { state_->finish(); }

std::uint32_t ThreadPool::threads() const {
  return static_cast<std::uint32_t>(state_->workers.size()) + 1;
}

void ThreadPool::run_erased(std::uint64_t count, void (*body)(void*, std::uint64_t),
                            void* context) {
  if (state_->workers.empty() || count == 1) {
    for (std::uint64_t i = 0; i < count; ++i) body(context, i);
    return;
  }
  for (std::uint64_t begin = 0; begin < count; begin += kLargestRound) {
    state_->run_round(begin, std::min(count - begin, kLargestRound), body, context);
  }
}

}  // namespace millpond::plugin
