#include "plugin/probe/cuda.h"

#include <cuda_runtime_api.h>

namespace millpond::plugin {

CudaDevices find_cuda_devices() {
  CudaDevices found;
  found.built = true;
  int before = -1;
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    found.why_none = cudaGetErrorString(counted);
    return found;
  }
  if (count == 0) found.why_none = "the driver shows no device (CUDA_VISIBLE_DEVICES)";
  const bool had = cudaGetDevice(&before) == cudaSuccess;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    CudaDevice device;
    if (cudaGetDeviceProperties(&properties, i) == cudaSuccess) {
      device.name = properties.name;
      device.major = static_cast<std::uint32_t>(properties.major);
      device.minor = static_cast<std::uint32_t>(properties.minor);
    }
    std::size_t free_bytes = 0;
    std::size_t all_bytes = 0;
    if (cudaSetDevice(i) == cudaSuccess && cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess) {
      device.memory_bytes = all_bytes;
      device.free_bytes = free_bytes;
    }
    found.devices.push_back(device);
  }
  if (had) static_cast<void>(cudaSetDevice(before));
  static_cast<void>(cudaGetLastError());
  return found;
}

}  // namespace millpond::plugin
