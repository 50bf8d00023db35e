// A process that saves over its own good checkpoint, under ptrace: it can be stopped where it
// enters any system call of that save.
#ifndef MILLPOND_TESTS_CHECKPOINT_TRACED_SAVE_H_
#define MILLPOND_TESTS_CHECKPOINT_TRACED_SAVE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tests/checkpoint/saved_training.h"

namespace millpond::tests {

// What the two saves hold.
inline constexpr std::uint64_t kOldSteps = 2, kNewSteps = 4;
inline constexpr const char* kTracedOptions =
    "\"tile_elements\": 4096, \"bucket_elements\": 9000, \"host_memory_bytes\": 200000, "
    "\"update_threads\": 1, \"io_engine\": \"threads\", \"queue_depth\": 2";

// The state after so many steps, from a store that nobody disturbs.
Everything state_after(const std::string& scratch, std::uint64_t steps);

struct TracedSave {
  bool traced = true;        // false: ptrace is not allowed here
  bool interrupted = false;  // killed where it was asked for
  bool reported = false;     // the save's success was told before the process ended
  std::uint64_t calls = 0;   // system calls of the save that were seen
};

// A process trains kOldSteps, saves below `path`, trains to kNewSteps, and saves again. When that
// save enters its system call `stop_at` (from 0; all threads stand still that make calls of the
// save), `at_stop` is called here and the process killed with SIGKILL; else it ends the same way
// when the save has been reported. Reaped on return.
TracedSave run_traced_save(const std::string& scratch, const std::string& path,
                           std::uint64_t stop_at, const std::function<void()>& at_stop = {});

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_CHECKPOINT_TRACED_SAVE_H_
