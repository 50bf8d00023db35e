// A plugin without CUDA code.
#include "plugin/probe/cuda.h"

namespace millpond::plugin {

CudaDevices find_cuda_devices() {
  return {.built = false, .why_none = "this plugin is built without CUDA", .devices = {}};
}

}  // namespace millpond::plugin
