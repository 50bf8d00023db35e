// Asynchronous transfers between pinned memory and files. One thread at a time uses an engine.
// Reads and writes share one queue. Engines know nothing of tiles.
#ifndef MILLPOND_PLUGIN_IO_ENGINE_H_
#define MILLPOND_PLUGIN_IO_ENGINE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace millpond::plugin {

// One transfer. The submitter keeps it alive and its memory untouched until a reap returned it.
// Offset, memory and bytes are multiples of 4096 where the file was opened with O_DIRECT.
struct Transfer {
  enum class Kind : std::uint8_t { kRead, kWrite };
  Kind kind = Kind::kRead;
  int fd = -1;
  std::uint64_t offset = 0;
  std::byte* memory = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t tag = 0;  // the submitter's
  const char* path = "";  // for messages; outlives the transfer

  // The result, valid after reap. error 0: all bytes were moved.
  int error = 0;           // errno
  std::uint64_t done = 0;  // bytes moved
};

// What moves bytes: io_uring, a pool of threads, or a test's engine that fails on purpose. A raw
// engine reports each attempt as the kernel answered it: short counts and EINTR, EAGAIN included.
// Destroyed with attempts in flight it does not wait for ever: see Engine. In a forked child
// destroying it touches nothing.
class RawEngine {
 public:
  virtual ~RawEngine() = default;
  virtual const char* name() const = 0;  // "io_uring", "io_uring_plain", "threads"
  // What became worse since it was made (memory that could not be registered); "" for nothing.
  virtual std::string note() const { return {}; }
  virtual std::uint32_t depth() const = 0;  // attempts that may be in flight
  // Queues one attempt; at most depth() are in flight. `attempt` lives until completed.
  virtual void start(Transfer* attempt) = 0;
  virtual void flush_submissions() = 0;  // hands everything queued to the kernel; batched
  // Fills `completed`; waits until one is there or the deadline passed. result: error, done of each
  // attempt. An attempt of more than 1 GiB may come back short.
  virtual std::size_t complete(std::span<Transfer*> completed,
                               std::chrono::steady_clock::time_point deadline) = 0;
  // Memory that transfers will use; called when nothing is in flight. Failing to register is not an
  // error (degrade).
  virtual void use_memory(std::byte* region, std::uint64_t bytes) = 0;
  // Files may be registered lazily; forget(fd) before it is closed.
  virtual void forget(int fd) = 0;
};

// The engine that the pipeline uses: continues short transfers (with O_DIRECT from the aligned-down
// offset), retries EINTR and EAGAIN until the timeout, cuts transfers at 1 GiB, counts, and gives
// every transfer a deadline.
class Engine {
 public:
  // timeout: for one transfer to finish, counted anew for each GiB and without times in which
  // nobody called (a stopped process). An overdue transfer comes back with ETIMEDOUT once, but its
  // memory stays owned by the kernel: owned_bytes() says how much until the late completion comes.
  // What was answered by EINTR, EAGAIN or too few bytes until the timeout comes back with that
  // errno (EIO for too few bytes) and owns nothing. Zero bytes, and the end of the file, are EIO.
  Engine(std::unique_ptr<RawEngine> raw, std::chrono::milliseconds timeout);
  // Waits for what is in flight until its deadline. What the kernel then still owns is leaked with
  // the engine: say so (owned_bytes()) before, and never free that memory. In a forked child:
  // nothing.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const char* name() const;
  std::string note() const;     // RawEngine::note
  std::uint32_t depth() const;  // RawEngine::depth
  // Nothing may be in flight. Before a region is unmapped: use_memory(nullptr, 0), since what is
  // mapped at that address later is other memory than what the kernel knows. Does nothing while the
  // kernel still owns memory.
  void use_memory(std::byte* region, std::uint64_t bytes);
  void forget(int fd);  // before each close of a file that transfers used
  // Never blocks and never allocates beyond what reserve() set aside: what exceeds the depth waits
  // inside.
  void submit(Transfer* transfer);
  void submit(std::span<Transfer* const> batch);  // one call of the kernel for all of them
  // Up to completed.size() finished transfers. wait: block until at least one is there, if any is
  // in flight.
  std::size_t reap(std::span<Transfer*> completed, bool wait);
  std::uint64_t in_flight() const;  // submitted and not yet reaped
  std::uint64_t owned_bytes()
      const;  // memory that timed-out transfers may still write to or read from
  // True when the kernel owns nothing any more, of overdue and of other transfers; waits up to
  // `timeout`. Starts nothing.
  bool drain_owned(std::chrono::milliseconds timeout);
  // Room for this many transfers in flight or waiting; called outside steps. More than that are
  // served as well, at the price of an allocation.
  void reserve(std::size_t transfers);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct EngineChoice {
  std::unique_ptr<RawEngine> raw;
  std::string reason;  // one line for the log: what was chosen and why not better
};
// kind: "auto", "io_uring", "threads". Throws Error where a named engine cannot be had; "auto"
// degrades. queue_depth 0: 32.
EngineChoice make_raw_engine(const std::string& kind, std::uint32_t queue_depth);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_ENGINE_H_
