#include "plugin/io/uring_engine.h"

#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "plugin/io/os_error.h"
#include "plugin/io/registered_files.h"
#include "plugin/io/registered_memory.h"
#include "plugin/io/sizes.h"

namespace millpond::plugin {
namespace {

using Clock = std::chrono::steady_clock;

__kernel_timespec until(Clock::time_point deadline) {
  const auto left = std::max(deadline - Clock::now(), Clock::duration(0));
  const auto seconds =
      std::min(std::chrono::duration_cast<std::chrono::seconds>(left), std::chrono::seconds(3600));
  const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(left - seconds);
  __kernel_timespec time = {};
  time.tv_sec = seconds.count();
  time.tv_nsec = std::clamp<long long>(rest.count(), 0, 999'999'999);
  return time;
}

// Owner of the ring. In a forked child the ring's memory is not there (ring_dontfork) and its
// descriptor is the parent's ring: nothing is touched.
class Ring {
 public:
  explicit Ring(std::uint32_t entries) {
    // The completion queue has twice the entries: what is in flight always fits.
    const int result = io_uring_queue_init(entries, &ring_, IORING_SETUP_CLAMP);
    if (result < 0) throw os_error("io_uring_setup", "", -result);
    io_uring_ring_dontfork(&ring_);
  }
  ~Ring() {
    if (!in_child()) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  io_uring* get() { return &ring_; }
  bool in_child() const { return maker_ != ::getpid(); }

 private:
  io_uring ring_ = {};
  pid_t maker_ = ::getpid();
};

class UringEngine final : public RawEngine {
 public:
  explicit UringEngine(std::uint32_t depth)
      : depth_(depth), ring_(depth), files_(ring_.get()), memory_(ring_.get()) {
    try_out();
  }
  ~UringEngine() override {
    // What is registered is given back to RLIMIT_MEMLOCK at once; left to the ring's end, late.
    if (!ring_.in_child()) memory_.use(nullptr, 0);
  }

  const char* name() const override { return refused_ == 0 ? "io_uring" : "io_uring_plain"; }
  std::string note() const override {
    if (refused_ == 0) return {};
    return "io_uring without registered memory (" + errno_text(refused_) +
           (refused_ == ENOMEM ? "; RLIMIT_MEMLOCK)" : ")");
  }
  std::uint32_t depth() const override { return depth_; }

  void start(Transfer* attempt) override;
  void flush_submissions() override;
  std::size_t complete(std::span<Transfer*> completed, Clock::time_point deadline) override;

  void use_memory(std::byte* region, std::uint64_t bytes) override {
    const int error = memory_.use(region, bytes);
    if (bytes > 0) refused_ = error;
  }
  void forget(int fd) override { files_.forget(fd); }

 private:
  void try_out();
  std::size_t take(std::span<Transfer*> completed);

  std::uint32_t depth_;
  Ring ring_;
  RegisteredFiles files_;
  RegisteredMemory memory_;
  int refused_ = 0;  // the errno with which registering memory was refused
};

// Some sandboxes let a ring be made and refuse to enter it.
void UringEngine::try_out() {
  io_uring_prep_nop(io_uring_get_sqe(ring_.get()));
  int result = 0;
  do result = io_uring_submit(ring_.get());
  while (result == -EINTR || result == -EAGAIN);
  if (result < 0) throw os_error("io_uring_enter", "", -result);
  io_uring_cqe* done = nullptr;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(5);
  do {
    __kernel_timespec time = until(deadline);
    result = io_uring_wait_cqes(ring_.get(), &done, 1, &time, nullptr);
  } while (result == -EINTR);
  if (result < 0) throw os_error("io_uring_enter", "", result == -ETIME ? ETIMEDOUT : -result);
  io_uring_cqe_seen(ring_.get(), done);
}

void UringEngine::start(Transfer* attempt) {
  io_uring_sqe* sqe = io_uring_get_sqe(ring_.get());
  while (sqe == nullptr) {  // a full queue: the kernel has not taken what was handed over yet
    flush_submissions();
    sqe = io_uring_get_sqe(ring_.get());
  }
  const int file = files_.index_of(attempt->fd);
  const int fd = file >= 0 ? file : attempt->fd;
  const auto bytes = static_cast<unsigned>(std::min(attempt->bytes, kMostAtOnce));
  const int piece = memory_.index_of(attempt->memory, bytes);
  const bool read = attempt->kind == Transfer::Kind::kRead;
  if (piece >= 0 && read) {
    io_uring_prep_read_fixed(sqe, fd, attempt->memory, bytes, attempt->offset, piece);
  } else if (piece >= 0) {
    io_uring_prep_write_fixed(sqe, fd, attempt->memory, bytes, attempt->offset, piece);
  } else if (read) {
    io_uring_prep_read(sqe, fd, attempt->memory, bytes, attempt->offset);
  } else {
    io_uring_prep_write(sqe, fd, attempt->memory, bytes, attempt->offset);
  }
  if (file >= 0) sqe->flags |= IOSQE_FIXED_FILE;
  io_uring_sqe_set_data(sqe, attempt);
}

void UringEngine::flush_submissions() {
  while (io_uring_sq_ready(ring_.get()) > 0) {
    const int result = io_uring_submit(ring_.get());
    // EAGAIN, EBUSY: the kernel is short of memory or of room for completions; complete() tries
    // again. Anything else leaves the attempts queued, and their deadline ends them.
    if (result <= 0 && result != -EINTR) return;
  }
}

std::size_t UringEngine::take(std::span<Transfer*> completed) {
  std::array<io_uring_cqe*, 64> entries = {};
  std::size_t count = 0;
  while (count < completed.size()) {
    const auto room = static_cast<unsigned>(std::min(completed.size() - count, entries.size()));
    const unsigned taken = io_uring_peek_batch_cqe(ring_.get(), entries.data(), room);
    for (unsigned i = 0; i < taken; ++i) {
      const io_uring_cqe* entry = entries[i];
      if (entry->user_data == LIBURING_UDATA_TIMEOUT) continue;  // liburing's own, on old kernels
      auto* attempt = static_cast<Transfer*>(io_uring_cqe_get_data(entry));
      attempt->error = entry->res < 0 ? -entry->res : 0;
      attempt->done = entry->res < 0 ? 0 : static_cast<std::uint64_t>(entry->res);
      completed[count++] = attempt;
    }
    io_uring_cq_advance(ring_.get(), taken);
    if (taken == 0) break;
  }
  return count;
}

std::size_t UringEngine::complete(std::span<Transfer*> completed, Clock::time_point deadline) {
  for (;;) {
    flush_submissions();
    const std::size_t count = take(completed);
    if (count > 0 || completed.empty()) return count;
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return 0;
    // Submissions that the kernel would not take yet are offered again soon.
    const bool queued = io_uring_sq_ready(ring_.get()) > 0;
    __kernel_timespec time =
        until(queued ? std::min(deadline, now + std::chrono::milliseconds(1)) : deadline);
    io_uring_cqe* entry = nullptr;
    // EINTR and ETIME: the loop looks again. Others would not wait: a pause instead of spinning.
    const int result = io_uring_wait_cqes(ring_.get(), &entry, 1, &time, nullptr);
    if (result < 0 && result != -EINTR && result != -ETIME) ::usleep(100);
  }
}

}  // namespace

std::unique_ptr<RawEngine> make_uring_engine(std::uint32_t depth) {
  return std::make_unique<UringEngine>(std::clamp(depth, 1u, 4096u));
}

}  // namespace millpond::plugin
