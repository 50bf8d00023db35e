// CUDA, as the store sees it. In a build without the toolkit cuda_absent.cc stands in: every device
// is refused with the reason. Nothing here touches the driver before it is called.
#ifndef MILLPOND_PLUGIN_DEVICE_CUDA_H_
#define MILLPOND_PLUGIN_DEVICE_CUDA_H_

#include <cstdint>
#include <memory>
#include <string>

#include "plugin/core/host.h"
#include "plugin/device/work.h"
#include "plugin/pipeline/region.h"

namespace millpond::plugin {

// "" where this build and machine can serve the device, else why not, as a sentence.
std::string cuda_refusal(std::int32_t device_id);

// Registers the host tier with CUDA, so that copies run at the bus's rate and kernels can work in
// it, and asks for its pages on the device's NUMA node. One a runtime, whatever the number of
// devices: the pages are pinned for all of them, and near to the first.
class CudaPin : public RegionPin {
 public:
  virtual bool pinned() const = 0;
  virtual const std::string& why_not() const = 0;  // where the driver refused
};
std::unique_ptr<CudaPin> make_cuda_pin(Host& host, std::int32_t device_id);

struct CudaRequest {
  std::int32_t device_id = 0;
  kernels::Variant variant = kernels::Variant::kHost;
  const Plan* plan = nullptr;       // of the tiles to come; read during construction
  std::uint64_t staging_bytes = 0;  // the most for tiles; 0: kernels work on the pinned host tier
  std::uint64_t tile_bytes = 0;     // of a place in the tier
  std::string uid;
  millpond_stream stream{};  // of the bind: device memory is taken and given back in its order
};
// `host` and `pin` are borrowed. Throws Error(E_MEMORY, E_DEVICE, E_UNSUPPORTED).
std::unique_ptr<Device> make_cuda_device(const CudaRequest& request, Host& host,
                                         const CudaPin& pin);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_DEVICE_CUDA_H_
