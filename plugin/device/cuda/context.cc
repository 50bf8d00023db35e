#include "plugin/device/cuda/context.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <string>

#include "millpond/error.hpp"
#include "plugin/device/cuda.h"
#include "plugin/device/cuda/check.h"

namespace millpond::plugin {
namespace {

// The four functions of the driver that the runtime has no counterpart for. The runtime's own copy
// of the library is the same one: the loader opens a file once.
struct Driver {
  decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&cuDevicePrimaryCtxRelease) release = nullptr;
  decltype(&cuCtxPushCurrent) push = nullptr;
  decltype(&cuCtxPopCurrent) pop = nullptr;

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          reinterpret_cast<std::uintptr_t>(dlsym(library, name)));
    };
    find(retain, "cuDevicePrimaryCtxRetain");
    find(release, "cuDevicePrimaryCtxRelease_v2");
    find(push, "cuCtxPushCurrent_v2");
    find(pop, "cuCtxPopCurrent_v2");
  }
  bool complete() const {
    return retain != nullptr && release != nullptr && push != nullptr && pop != nullptr;
  }
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

void check_driver(CUresult code, const char* operation) {
  if (code == CUDA_SUCCESS) return;
  // Driver and runtime number the same errors alike.
  throw cuda_error(static_cast<int>(code), operation);
}

}  // namespace

std::string cuda_refusal(std::int32_t device_id) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return std::string("CUDA finds no device: ") + cudaGetErrorName(error) + ", " +
           cudaGetErrorString(error);
  }
  if (device_id >= devices) {
    return "there is no CUDA device " + std::to_string(device_id) + ": this process sees " +
           std::to_string(devices);
  }
  return driver().complete() ? "" : "the CUDA driver lacks functions that are needed";
}

CudaContext::CudaContext(std::int32_t device_id) : device_(device_id) {
  const std::string refusal = cuda_refusal(device_id);
  if (!refusal.empty()) {
    throw Error(MILLPOND_E_DEVICE, "use a CUDA device", refusal)
        .field("device_id")
        .remedy("Look at nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  CUcontext context = nullptr;
  check_driver(driver().retain(&context, device_id), "retain the device's context");
  context_ = context;
}

CudaContext::~CudaContext() { static_cast<void>(driver().release(device_)); }

CudaContext::Scope::Scope(const CudaContext& context) {
  check_driver(driver().push(static_cast<CUcontext>(context.context_)), "use the device's context");
}

CudaContext::Scope::~Scope() {
  CUcontext context = nullptr;
  static_cast<void>(driver().pop(&context));
}

}  // namespace millpond::plugin
