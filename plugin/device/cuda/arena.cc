#include "plugin/device/cuda/arena.h"

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "plugin/device/cuda/check.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kAlignment = 512;  // what cudaMalloc gives at least

}  // namespace

CudaArena::CudaArena(Host& host, std::uint64_t bytes, millpond_stream stream)
    : host_(host), bytes_(bytes), stream_(stream) {
  take();
}

CudaArena::~CudaArena() {
  try {
    release();
  } catch (const Error& error) {
    host_.log(MILLPOND_LOG_WARNING, std::string("giving back device memory: ") + error.what());
  }
}

void CudaArena::take() {
  if (data_ != nullptr || bytes_ == 0) return;
  void* memory = nullptr;
  if (host_.has_alloc()) {
    memory = host_.alloc(bytes_, kAlignment, stream_);
  } else {
    check_cuda(cudaMalloc(&memory, bytes_), "take device memory", bytes_);
  }
  data_ = static_cast<std::byte*>(memory);
}

void CudaArena::release() {
  std::byte* const memory = std::exchange(data_, nullptr);
  if (memory == nullptr) return;
  if (host_.has_alloc()) {
    host_.free(memory, bytes_, stream_);
  } else {
    check_cuda(cudaFree(memory), "give back device memory", bytes_);
  }
}

}  // namespace millpond::plugin
