// A plugin without CUDA code.
#include "millpond/error.hpp"
#include "plugin/probe/cuda.h"

namespace millpond::plugin {

CudaDevices find_cuda_devices() {
  return {.built = false, .why_none = "this plugin is built without CUDA", .devices = {}};
}

BusRate measure_bus(std::int32_t, std::uint32_t, BusDirections) {
  throw Error(MILLPOND_E_UNSUPPORTED, "measure the bus", "this plugin is built without CUDA");
}

UpdateRate measure_cuda_update(std::int32_t, const UpdateRequest&) {
  throw Error(MILLPOND_E_UNSUPPORTED, "measure the device", "this plugin is built without CUDA");
}

PinTime measure_pin(std::int32_t, std::uint64_t, std::uint32_t) {
  throw Error(MILLPOND_E_UNSUPPORTED, "measure pinning", "this plugin is built without CUDA");
}

}  // namespace millpond::plugin
