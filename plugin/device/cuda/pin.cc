#include <cuda_runtime_api.h>

#include <string>

#include "plugin/device/cuda.h"
#include "plugin/device/cuda/check.h"
#include "plugin/device/cuda/context.h"

namespace millpond::plugin {
namespace {

class Pin final : public CudaPin {
 public:
  Pin(Host& host, std::int32_t device_id) : host_(host), context_(device_id) {}
  ~Pin() override { Pin::detach(); }

  void attach(std::byte* data, std::uint64_t bytes) override {
    detach();
    if (bytes == 0) return;
    const CudaContext::Scope scope(context_);
    const cudaError_t error =
        cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error == cudaSuccess) {
      data_ = data;
      return;
    }
    static_cast<void>(cudaGetLastError());
    why_not_ = std::string("CUDA did not pin ") + std::to_string(bytes) +
               " bytes of the host tier (" + cudaGetErrorName(error) + ": " +
               cudaGetErrorString(error) + ")";
    host_.log(MILLPOND_LOG_WARNING,
              why_not_ +
                  ": copies go through the driver's own buffers and are several times "
                  "slower. Raise the limit of locked memory (ulimit -l), or lower "
                  "host_memory_bytes");
  }

  void detach() noexcept override {
    why_not_.clear();
    if (data_ == nullptr) return;
    try {
      const CudaContext::Scope scope(context_);
      if (cudaHostUnregister(data_) != cudaSuccess) static_cast<void>(cudaGetLastError());
    } catch (const Error&) {
      // The context is gone, and its registrations with it.
    }
    data_ = nullptr;
  }

  bool pinned() const override { return data_ != nullptr; }
  const std::string& why_not() const override { return why_not_; }

 private:
  Host& host_;
  CudaContext context_;
  std::byte* data_ = nullptr;
  std::string why_not_;
};

}  // namespace

std::unique_ptr<CudaPin> make_cuda_pin(Host& host, std::int32_t device_id) {
  return std::make_unique<Pin>(host, device_id);
}

}  // namespace millpond::plugin
