// The CUDA devices that this process sees. Without the CUDA toolkit at build time: none, and why.
#ifndef MILLPOND_PLUGIN_PROBE_CUDA_H_
#define MILLPOND_PLUGIN_PROBE_CUDA_H_

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PROBE_CUDA_H_
