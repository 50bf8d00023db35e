// This process's memory, as the kernel counts it.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_RESIDENT_MEMORY_H_
#define MILLPOND_HOST_ADAPTERS_CLI_RESIDENT_MEMORY_H_

#include <cstdint>

namespace millpond::cli {

std::uint64_t resident_bytes();       // now; 0 where /proc does not say
std::uint64_t peak_resident_bytes();  // since the process began or the last restart_peak
// The peak counts from now on. False where the kernel does not offer it.
bool restart_peak();

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_RESIDENT_MEMORY_H_
