// The CUDA devices that this process sees. Without the CUDA toolkit at build time: none, and why.
#ifndef MILLPOND_PLUGIN_PROBE_CUDA_H_
#define MILLPOND_PLUGIN_PROBE_CUDA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugin/probe/update.h"

namespace millpond::plugin {

struct CudaDevice {
  std::string name;
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint32_t major = 0;  // compute capability
  std::uint32_t minor = 0;
};

struct CudaDevices {
  bool built = false;  // this plugin has CUDA code
  std::string why_none;
  std::vector<CudaDevice> devices;
};

CudaDevices find_cuda_devices();

// Copies between pinned host memory and the device, bytes per second.
struct BusRate {
  double up_bytes_per_s = 0;
  double down_bytes_per_s = 0;
  double both_bytes_per_s = 0;  // at once, the total
};
// Which of them are measured; the others are 0.
struct BusDirections {
  bool up = true;
  bool down = true;
  bool both = true;
};
// Medians of `rounds`. Takes 512 MiB on either side. Throws Error(E_DEVICE, E_MEMORY,
// E_UNSUPPORTED).
BusRate measure_bus(std::int32_t device, std::uint32_t rounds, BusDirections directions = {});

// The update of one tile in device memory, and its loads and stores without the arithmetic. Of the
// request, threads are not looked at. The ceiling's tile is one shard, also where the update's has
// many. Throws as above.
UpdateRate measure_cuda_update(std::int32_t device, const UpdateRequest& request);

// What a host tier costs before anything is in it.
struct PinTime {
  double touch_seconds = 0;  // mapped, and every page touched
  double register_seconds = 0;
  std::uint32_t threads = 0;  // that touched
};
// `threads` 0: processors. Takes `bytes` of host memory for its time. Throws Error(E_DEVICE,
// E_MEMORY, E_UNSUPPORTED).
PinTime measure_pin(std::int32_t device, std::uint64_t bytes, std::uint32_t threads);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PROBE_CUDA_H_
