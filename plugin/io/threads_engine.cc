#include "plugin/io/threads_engine.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "plugin/core/blocked_signals.h"
#include "plugin/io/os_error.h"
#include "plugin/io/sizes.h"

namespace millpond::plugin {
namespace {

constexpr std::uint32_t kMostThreads = 32;

// A queue in memory that was set aside: one attempt is in one of the queues at most.
class Queue {
 public:
  explicit Queue(std::size_t room) : items_(room) {}
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  void push(Transfer* item) { items_[(first_ + count_++) % items_.size()] = item; }
  Transfer* pop() {
    Transfer* item = items_[first_];
    first_ = (first_ + 1) % items_.size();
    --count_;
    return item;
  }

 private:
  std::vector<Transfer*> items_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

void move_bytes(Transfer* attempt) {
  const std::size_t count = std::min(attempt->bytes, kMostAtOnce);
  const auto offset = static_cast<off_t>(attempt->offset);
  const ssize_t n = attempt->kind == Transfer::Kind::kRead
                        ? ::pread(attempt->fd, attempt->memory, count, offset)
                        : ::pwrite(attempt->fd, attempt->memory, count, offset);
  attempt->error = n < 0 ? errno : 0;
  attempt->done = n < 0 ? 0 : static_cast<std::uint64_t>(n);
}

class ThreadsEngine final : public RawEngine {
 public:
  explicit ThreadsEngine(std::uint32_t depth) : shared_(std::make_shared<Shared>(depth)) {
    const std::uint32_t wanted = std::min(depth, kMostThreads);
    int error = 0;
    try {
      const BlockedSignals inherited;
      threads_->reserve(wanted);
      while (threads_->size() < wanted) threads_->emplace_back(&ThreadsEngine::serve, shared_);
    } catch (const std::system_error& failure) {
      error = failure.code().value();
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
    if (threads_->empty()) throw os_error("start I/O threads", "", error);
  }

  ~ThreadsEngine() override {
    if (maker_ != ::getpid()) {
      // The threads are the parent's, and one of them may have held the lock at the fork. Each
      // holds a share of what is shared, so that this only ends ours.
      threads_.release();  // NOLINT(bugprone-unused-return-value)
      return;
    }
    bool stuck = false;
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->stop = true;
      stuck = shared_->working > 0;
    }
    shared_->work.notify_all();
    // A thread that sits in the kernel for good would be waited for for good. It holds a share of
    // what it needs.
    for (std::thread& thread : *threads_) stuck ? thread.detach() : thread.join();
  }

  const char* name() const override { return "threads"; }
  std::uint32_t depth() const override { return static_cast<std::uint32_t>(shared_->room); }

  void start(Transfer* attempt) override { staged_.push(attempt); }

  void flush_submissions() override {
    if (staged_.empty()) return;
    const std::size_t count = staged_.size();
    {
      const std::lock_guard lock(shared_->mutex);
      while (!staged_.empty()) shared_->waiting.push(staged_.pop());
    }
    if (count == 1) {
      shared_->work.notify_one();
    } else {
      shared_->work.notify_all();
    }
  }

  std::size_t complete(std::span<Transfer*> completed,
                       std::chrono::steady_clock::time_point deadline) override {
    flush_submissions();
    std::unique_lock lock(shared_->mutex);
    Queue& finished = shared_->finished;
    shared_->done.wait_until(lock, deadline, [&] { return !finished.empty(); });
    std::size_t count = 0;
    while (count < completed.size() && !finished.empty()) completed[count++] = finished.pop();
    return count;
  }

  void use_memory(std::byte*, std::uint64_t) override {}
  void forget(int) override {}

 private:
  struct Shared {
    explicit Shared(std::size_t depth) : room(depth), waiting(depth), finished(depth) {}
    std::size_t room;
    std::mutex mutex;
    std::condition_variable work;
    std::condition_variable done;
    Queue waiting;
    Queue finished;
    std::size_t working = 0;
    bool stop = false;
  };

  static void serve(std::shared_ptr<Shared> shared) {
    std::unique_lock lock(shared->mutex);
    for (;;) {
      shared->work.wait(lock, [&] { return shared->stop || !shared->waiting.empty(); });
      if (shared->stop) return;
      Transfer* attempt = shared->waiting.pop();
      ++shared->working;
      lock.unlock();
      move_bytes(attempt);
      lock.lock();
      --shared->working;
      shared->finished.push(attempt);
      shared->done.notify_one();
    }
  }

  std::shared_ptr<Shared> shared_;
  std::unique_ptr<std::vector<std::thread>> threads_ = std::make_unique<std::vector<std::thread>>();
  Queue staged_{shared_->room};
  pid_t maker_ = ::getpid();
};

}  // namespace

std::unique_ptr<RawEngine> make_threads_engine(std::uint32_t depth) {
  return std::make_unique<ThreadsEngine>(std::max(depth, 1u));
}

}  // namespace millpond::plugin
