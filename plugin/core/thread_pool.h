// Persistent worker threads for checksums and updates inside a call. No allocation and no thread
// start in run().
#ifndef MILLPOND_PLUGIN_CORE_THREAD_POOL_H_
#define MILLPOND_PLUGIN_CORE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

namespace millpond::plugin {

class ThreadPool {
 public:
  // `threads` in all, the caller's included: 1 starts none. Workers block all signals.
  explicit ThreadPool(std::uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::uint32_t threads() const;

  // Calls body(i) for i in [0, count), on the workers and on the caller; returns when all are done.
  // body must not throw. One caller at a time.
  template <typename Body>
  void run(std::uint64_t count, Body&& body) {
    run_erased(
        count, [](void* context, std::uint64_t i) { (*static_cast<Body*>(context))(i); }, &body);
  }

  // The same for a body that may throw: what comes after a failure need not be begun, and the
  // failure of the smallest index is thrown when all have come to rest.
  template <typename Body>
  void run_or_throw(std::uint64_t count, Body&& body) {
    std::mutex mutex;
    std::exception_ptr failure;
    std::atomic<std::uint64_t> failed{count};
    run(count, [&](std::uint64_t i) {
      if (i > failed.load(std::memory_order_relaxed)) return;
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i >= failed.load(std::memory_order_relaxed)) return;
        failed.store(i, std::memory_order_relaxed);
        failure = std::current_exception();
      }
    });
    if (failure) std::rethrow_exception(failure);
  }

 private:
  void run_erased(std::uint64_t count, void (*body)(void*, std::uint64_t), void* context);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_CORE_THREAD_POOL_H_
