#include "plugin/device/cuda/check.h"

#include <cuda_runtime_api.h>

#include <string>

namespace millpond::plugin {

bool context_is_lost(int code) {
  switch (code) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorContextIsDestroyed:
      return true;
    default:
      return false;
  }
}

Error cuda_error(int code, const char* operation, std::uint64_t bytes) {
  const auto error = static_cast<cudaError_t>(code);
  static_cast<void>(cudaGetLastError());  // a later launch must not report this one
  const std::string reason =
      std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) {
    return Error(MILLPOND_E_MEMORY, operation, reason)
        .field("options.device_staging_bytes")
        .want(bytes, kNoValue)
        .cuda(code)
        .remedy("Lower device_staging_bytes, or free memory on the device");
  }
  return Error(MILLPOND_E_DEVICE, operation, reason)
      .cuda(code)
      .remedy(context_is_lost(code)
                  ? "CUDA is lost for this process: restart it, and load a checkpoint"
                  : "Look at the device and its driver (nvidia-smi), then load a checkpoint");
}

}  // namespace millpond::plugin
