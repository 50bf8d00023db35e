// A raw engine that fails on purpose: wraps a real one, which moves the bytes.
#ifndef MILLPOND_TESTS_IO_FAULT_ENGINE_H_
#define MILLPOND_TESTS_IO_FAULT_ENGINE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plugin/io/engine.h"

namespace millpond::plugin {

// What goes wrong, and with which attempts. Attempts are counted from 1 as they are started.
struct Fault {
  enum class Kind : std::uint8_t {
    kNone,
    kError,      // nothing is moved, the attempt comes back with `error`
    kShortBy,    // says that all but the last `bytes` bytes were moved, and one at least
    kShortTo,    // says that the first `bytes` bytes were moved; 0: a zero-length completion. Where
                 // the attempt is 4096-aligned (O_DIRECT), what is begun of a page is not moved
    kDelay,      // the bytes are moved, the answer comes after `delay`
    kNever,      // the bytes are moved, the answer comes after let_go()
    kUnaligned,  // EINVAL for whatever is not 4096-aligned; the rest is let through
  };
  Kind kind = Kind::kNone;
  std::uint64_t attempt = 1;  // the first that it meets
  bool for_ever = false;      // that one only, or all from there on
  int error = 0;
  std::uint64_t bytes = 0;
  std::chrono::milliseconds delay{0};
  std::optional<Transfer::Kind> only;  // counts and meets attempts of this kind only
};

// One thread at a time, like every raw engine. Tests keep a pointer to it beside the Engine that
// owns it: its faults may be changed while nothing is in flight. Allocates when it is made only.
class FaultEngine final : public RawEngine {
 public:
  explicit FaultEngine(std::unique_ptr<RawEngine> inner);

  void set(const Fault& fault);  // counts from 1 again
  void let_go();                 // answers held back by kNever come at the next complete()

  std::uint64_t attempts() const { return attempts_; }  // that counted, since set()
  std::uint64_t met() const { return met_; }            // of these, by the fault
  std::uint64_t out() const { return out_; }  // attempts whose memory is not given back yet
  std::uint64_t out_bytes() const { return out_bytes_; }

  const char* name() const override { return "fault"; }
  std::uint32_t depth() const override { return inner_->depth(); }
  void start(Transfer* attempt) override;
  void flush_submissions() override { inner_->flush_submissions(); }
  std::size_t complete(std::span<Transfer*> completed,
                       std::chrono::steady_clock::time_point deadline) override;
  void use_memory(std::byte* region, std::uint64_t bytes) override {
    inner_->use_memory(region, bytes);
  }
  void forget(int fd) override { inner_->forget(fd); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Transfer moved;             // what the inner engine has
    Transfer* given = nullptr;  // what the caller has
    Fault::Kind kind = Fault::Kind::kNone;
    std::uint64_t told = 0;  // bytes that the caller hears were moved, if all of `moved` were
    Clock::time_point due;
    bool answered = false;  // the inner engine is done with it
    bool used = false;
  };
  bool meets(const Transfer& attempt);
  std::size_t give(std::span<Transfer*> completed);
  Clock::time_point next_due() const;

  std::unique_ptr<RawEngine> inner_;
  Fault fault_;
  std::vector<Entry> entries_;
  std::vector<Transfer*> answers_;
  std::uint64_t attempts_ = 0;
  std::uint64_t met_ = 0;
  std::uint64_t out_ = 0;
  std::uint64_t out_bytes_ = 0;
  std::uint64_t inner_in_flight_ = 0;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_TESTS_IO_FAULT_ENGINE_H_
