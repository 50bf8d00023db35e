// The processes of a run on one machine: forked, watched, and ended together.
#ifndef MILLPOND_HOST_ADAPTERS_PROCESSES_RANKS_H_
#define MILLPOND_HOST_ADAPTERS_PROCESSES_RANKS_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "host_adapters/processes/meeting.h"

namespace millpond::processes {

// Runs `body(rank)` in one process for each rank of the meeting and returns when all have ended: 0
// where all returned 0, else the exit code of the first that ended otherwise (1 after a signal). A
// rank that ends so is told to the others through the meeting; those that have not ended ten
// seconds later are killed, also where the meeting was broken up. Ranks do not outlive the caller.
// `tell` gets one line for each start and each end that was not a success.
//
// The caller must have no other threads. A meeting of one rank runs in the caller's own process.
int run_ranks(Meeting& meeting, const std::function<int(std::uint32_t rank)>& body,
              const std::function<void(std::string_view)>& tell);

}  // namespace millpond::processes

#endif  // MILLPOND_HOST_ADAPTERS_PROCESSES_RANKS_H_
