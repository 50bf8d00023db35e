#include <cuda_runtime_api.h>

#include <array>
#include <optional>
#include <string>
#include <system_error>

#include "plugin/core/numa.h"
#include "plugin/device/cuda.h"
#include "plugin/device/cuda/check.h"
#include "plugin/device/cuda/context.h"

namespace millpond::plugin {
namespace {

// "0000:1b:00.0"; empty where CUDA does not say.
std::string pci_address_of(std::int32_t device_id) {
  std::array<char, 32> text{};
  if (cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device_id) == cudaSuccess) {
    return text.data();
  }
  static_cast<void>(cudaGetLastError());
  return {};
}

class Pin final : public CudaPin {
 public:
  Pin(Host& host, std::int32_t device_id)
      : host_(host),
        context_(device_id),
        device_("CUDA device " + std::to_string(device_id)),
        node_(numa_node_of_pci(pci_address_of(device_id))) {}
  ~Pin() override { Pin::detach(); }

  // A copy to another socket's memory also takes the way between the sockets, which all share.
  void prepare(std::byte* data, std::uint64_t bytes) override {
    if (!node_) return;
    const int error = prefer_numa_node(data, bytes, *node_);
    if (error == 0) return;
    host_.log(MILLPOND_LOG_WARNING,
              "the host tier could not be asked for on NUMA node " + std::to_string(*node_) +
                  ", that of " + device_ + " (" + std::generic_category().message(error) +
                  "): its pages lie where the kernel puts them. Start the process with numactl "
                  "--preferred " +
                  std::to_string(*node_) + ", or allow mbind (CAP_SYS_NICE in a container)");
  }

  void attach(std::byte* data, std::uint64_t bytes) override {
    detach();
    if (bytes == 0) return;
    const CudaContext::Scope scope(context_);
    const cudaError_t error =
        cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error == cudaSuccess) {
      data_ = data;
      tell_node(data, bytes);
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
  void tell_node(std::byte* data, std::uint64_t bytes) {
    if (!node_) return;
    const PagesOnNode pages = pages_on_node(data, bytes, *node_);
    if (pages.looked_at == 0) return;
    host_.log(MILLPOND_LOG_INFO, "host tier: " + std::to_string(pages.there) + " of " +
                                     std::to_string(pages.looked_at) +
                                     " pages looked at lie on NUMA node " + std::to_string(*node_) +
                                     ", that of " + device_);
  }

  Host& host_;
  CudaContext context_;
  std::string device_;                 // in words
  std::optional<std::uint32_t> node_;  // nothing: one node, or unknown
  std::byte* data_ = nullptr;
  std::string why_not_;
};

}  // namespace

std::unique_ptr<CudaPin> make_cuda_pin(Host& host, std::int32_t device_id) {
  return std::make_unique<Pin>(host, device_id);
}

}  // namespace millpond::plugin
