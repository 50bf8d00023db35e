// Owners of CUDA's objects. Made and destroyed with their context current; a destructor waits for
// nothing, so whoever owns work in flight lets it end first.
#ifndef MILLPOND_PLUGIN_DEVICE_CUDA_OWNERS_H_
#define MILLPOND_PLUGIN_DEVICE_CUDA_OWNERS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "plugin/device/cuda/check.h"

namespace millpond::plugin {

// Not the legacy default stream, and not ordered by it.
class CudaStream {
 public:
  CudaStream() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  }
  ~CudaStream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  CudaStream(CudaStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  CudaStream& operator=(CudaStream&&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaEvent {
 public:
  CudaEvent() { check_cuda(cudaEventCreate(&event_), "make an event"); }
  ~CudaEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&&) = delete;
  cudaEvent_t get() const { return event_; }

  void record(cudaStream_t on) { check_cuda(cudaEventRecord(event_, on), "record an event"); }
  // What is enqueued on `stream` from now on waits for the last record.
  void hold(cudaStream_t stream) const {
    check_cuda(cudaStreamWaitEvent(stream, event_, 0), "order a stream");
  }
  // Both recorded and over.
  double seconds_since(const CudaEvent& begin) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "read an event's time");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Host memory that copies can run from beside everything else.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::uint64_t bytes) {
    if (bytes == 0) return;
    check_cuda(cudaHostAlloc(&memory_, bytes, cudaHostAllocPortable), "take pinned memory", bytes);
  }
  ~PinnedMemory() {
    if (memory_ != nullptr) cudaFreeHost(memory_);
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* get() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_DEVICE_CUDA_OWNERS_H_
