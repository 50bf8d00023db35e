// CUDA in a build without the toolkit.
#include "millpond/error.hpp"
#include "plugin/device/cuda.h"

namespace millpond::plugin {
namespace {

constexpr char kAbsent[] = "this build of libmillpond.so has no CUDA device";

Error absent(const char* operation) {
  return Error(MILLPOND_E_UNSUPPORTED, operation, kAbsent)
      .remedy("Use a build with CUDA (-DMILLPOND_CUDA=ON), or bind CPU tensors");
}

}  // namespace

std::string cuda_refusal(std::int32_t) { return kAbsent; }

std::unique_ptr<CudaPin> make_cuda_pin(Host&, std::int32_t) { throw absent("pin the host tier"); }

std::unique_ptr<Device> make_cuda_device(const CudaRequest&, Host&, const CudaPin&) {
  throw absent("make a CUDA device");
}

}  // namespace millpond::plugin
