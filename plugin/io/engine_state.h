// The inside of Engine: a slot for each transfer, and the lists that slots stand in.
#ifndef MILLPOND_PLUGIN_IO_ENGINE_STATE_H_
#define MILLPOND_PLUGIN_IO_ENGINE_STATE_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plugin/io/engine.h"

namespace millpond::plugin {

using Clock = std::chrono::steady_clock;

// A wait is cut into pieces of this, and a longer pause between two looks counts as absence.
inline constexpr auto kLookAgain = std::chrono::seconds(1);

struct Slot;

// What raw has.
struct Attempt : Transfer {
  Slot* slot = nullptr;
};

// A transfer on its way. It goes waiting -> raw -> (waiting or retrying -> raw ->)* finished ->
// free. An overdue one is finished while raw still holds it, and free when both are over.
struct Slot {
  Attempt attempt;
  Transfer* user = nullptr;
  std::uint64_t position = 0;  // bytes that are done
  Clock::time_point deadline;  // of the present GiB; set at its first attempt
  Clock::time_point retry_at;
  Clock::duration pause{};  // before the next retry
  int last_error = 0;       // why it is retried
  bool aligned = false;     // offset, memory and bytes are: goes on from whole pages only
  bool timed = false;       // deadline is set
  bool in_raw = false;
  bool overdue = false;
  bool reaped = false;
  Slot* next = nullptr;
};

class SlotList {
 public:
  bool empty() const { return first_ == nullptr; }
  void push(Slot* slot) {
    slot->next = nullptr;
    *(last_ == nullptr ? &first_ : &last_->next) = slot;
    last_ = slot;
  }
  Slot* pop() {
    Slot* slot = first_;
    first_ = slot->next;
    if (first_ == nullptr) last_ = nullptr;
    return slot;
  }
  SlotList take() {
    SlotList all = *this;
    *this = SlotList();
    return all;
  }

 private:
  Slot* first_ = nullptr;
  Slot* last_ = nullptr;
};

struct Engine::State {
  State(std::unique_ptr<RawEngine> raw_engine, std::chrono::milliseconds limit);

  void reserve(std::size_t transfers);
  void add(Transfer* transfer);
  // Starts what may be started, and hands it to the kernel.
  void pump();
  // Takes what raw has completed, waiting until `deadline` for the first.
  void collect(Clock::time_point deadline);
  // Ends what is past its deadline.
  void expire();
  // Time in which nobody looked for longer than kLookAgain does not count: whoever was stopped
  // (SIGSTOP, a paused container) or busy elsewhere cannot say that a transfer took so long.
  // Called at every look; waited_until: until when this look was meant to last.
  void look(Clock::time_point waited_until);
  // When something is to be done even if nothing completes.
  Clock::time_point next_event() const;
  std::size_t give(std::span<Transfer*> completed);
  bool in_child() const;

  std::unique_ptr<RawEngine> raw;
  std::chrono::milliseconds timeout;
  std::vector<std::unique_ptr<Slot[]>> blocks;
  std::vector<std::size_t> block_sizes;
  std::size_t slots = 0;
  SlotList unused;
  SlotList waiting;
  SlotList retrying;
  SlotList finished;
  std::vector<Transfer*> completions;  // raw's answers
  std::uint64_t unreaped = 0;
  std::uint64_t in_raw = 0;
  std::uint64_t overdue_in_raw = 0;
  std::uint64_t owned = 0;
  Clock::time_point next_deadline = Clock::time_point::max();  // no slot's is earlier
  Clock::time_point next_retry = Clock::time_point::max();
  Clock::time_point looked = Clock::now();  // the end of the last look
  pid_t maker;
  State* next_leaked = nullptr;

 private:
  void start(Slot* slot, Clock::time_point now);
  void answered(Slot* slot, Clock::time_point now);
  void came_short(Slot* slot, std::uint64_t moved, Clock::time_point now);
  void retry(Slot* slot, int error, Clock::time_point now);
  void finish(Slot* slot, int error, std::uint64_t done);
  void release(Slot* slot);
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_ENGINE_STATE_H_
