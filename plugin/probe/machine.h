// What this process may use of the machine, and whether streaming can work with it.
#ifndef MILLPOND_PLUGIN_PROBE_MACHINE_H_
#define MILLPOND_PLUGIN_PROBE_MACHINE_H_

#include <cstdint>
#include <string>

#include "plugin/probe/check.h"
#include "plugin/probe/cuda.h"

namespace millpond::plugin {

struct MachineRequest {
  std::string engine = "auto";  // as the option
  std::uint32_t queue_depth = 0;
  // What is available, and which file says so; the caller knows how to ask.
  std::uint64_t available_bytes = 0;
  std::string available_source;
};

inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

struct Machine {
  std::uint32_t processors = 0;  // that this process may run on
  std::string instructions;      // "avx512", "avx2", "portable": of the update on the CPU
  std::uint64_t memlock_bytes = 0;
  std::uint64_t open_files = 0;
  std::string engine;  // empty: none
  std::string engine_reason;
  std::uint32_t queue_depth = 0;
  bool registered = false;  // memory can be registered with the kernel
  CudaDevices cuda;
  Checks checks;  // "engine", "memlock", "memory", "open_files", "processor", "cuda"
};

Machine look_at_machine(const MachineRequest& request);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PROBE_MACHINE_H_
