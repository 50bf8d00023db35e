// How much memory the pinned region may take when the host says "auto".
#ifndef MILLPOND_PLUGIN_STORE_HOST_MEMORY_H_
#define MILLPOND_PLUGIN_STORE_HOST_MEMORY_H_

#include <cstdint>
#include <string>

#include "plugin/options/options.h"

namespace millpond::plugin {

struct AvailableMemory {
  std::uint64_t bytes = 0;
  std::string source;  // "MemAvailable", or the control group's file that allows less
};

// What this process may still take: MemAvailable, or less where a control group (v1 or v2, any of
// its ancestors) limits it; pages of the group's file cache that can be dropped count as free.
// `root` is put before /proc and /sys, for tests.
AvailableMemory available_memory(const std::string& root = "");

struct MemoryChoice {
  std::uint64_t cap = 0;
  std::string sentence;  // for the log
};

// The option's number, at most what is available less an eighth and less `page_cache`, but for half
// of what is available; or for "auto" half of it, shared among the node's ranks. `page_cache`:
// bytes that transfers under way may hold there, which the kernel cannot drop before it has written
// them; 0 where files are read and written directly. Throws Error(E_MEMORY) where the machine does
// not say what is available.
MemoryChoice choose_host_memory(const Options& options, std::uint64_t page_cache,
                                const std::string& root = "");

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_HOST_MEMORY_H_
