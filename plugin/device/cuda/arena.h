// All device memory of one store: the tables, and places for tiles on their way. One allocation,
// through the host's callback where there is one, so that it shows in the framework's accounting.
#ifndef MILLPOND_PLUGIN_DEVICE_CUDA_ARENA_H_
#define MILLPOND_PLUGIN_DEVICE_CUDA_ARENA_H_

#include <cstddef>
#include <cstdint>

#include "millpond/base.h"
#include "plugin/core/host.h"

namespace millpond::plugin {

class CudaArena {
 public:
  // `stream`: in whose order the host's callbacks give and take.
  CudaArena(Host& host, std::uint64_t bytes, millpond_stream stream);
  ~CudaArena();
  CudaArena(const CudaArena&) = delete;
  CudaArena& operator=(const CudaArena&) = delete;

  // The device's context is current, and nothing is in flight. take() throws Error(E_MEMORY) or
  // Error(E_CALLBACK); what `stream` holds at that time must be waited for before the memory is
  // used. release() throws Error(E_CALLBACK); the memory counts as gone then.
  void take();
  void release();

  std::byte* data() const { return data_; }  // NULL: not taken
  std::uint64_t held_bytes() const { return data_ == nullptr ? 0 : bytes_; }

 private:
  Host& host_;
  std::uint64_t bytes_;
  millpond_stream stream_;
  std::byte* data_ = nullptr;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_DEVICE_CUDA_ARENA_H_
