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

// The option's number, at most seven eighths of what is available; or for "auto" half of it, shared
// among the node's ranks.
// Throws Error(E_MEMORY) where the machine does not say what is available.
MemoryChoice choose_host_memory(const Options& options, const std::string& root = "");

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_HOST_MEMORY_H_
