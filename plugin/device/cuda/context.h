// The primary context of a device, shared with whatever else in the process uses CUDA: torch and
// its own runtime, other stores. It is pushed for the time of a call and popped again, so that the
// host's current device never changes and no context appears on a device that nobody asked for.
#ifndef MILLPOND_PLUGIN_DEVICE_CUDA_CONTEXT_H_
#define MILLPOND_PLUGIN_DEVICE_CUDA_CONTEXT_H_

#include <cstdint>

namespace millpond::plugin {

class CudaContext {
 public:
  // Retains it. Throws Error(E_DEVICE).
  explicit CudaContext(std::int32_t device_id);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  // Current on this thread while it lives.
  class Scope {
   public:
    explicit Scope(const CudaContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

 private:
  std::int32_t device_ = 0;
  void* context_ = nullptr;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_DEVICE_CUDA_CONTEXT_H_
