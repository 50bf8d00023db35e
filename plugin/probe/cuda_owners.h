// Owners for measurements on a CUDA device: its memory, a stream and what is timed on it.
#ifndef MILLPOND_PLUGIN_PROBE_CUDA_OWNERS_H_
#define MILLPOND_PLUGIN_PROBE_CUDA_OWNERS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "millpond/error.hpp"

namespace millpond::plugin::measuring {

inline void check(int code, const char* what) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  const auto error = static_cast<cudaError_t>(code);
  throw Error(error == cudaErrorMemoryAllocation ? MILLPOND_E_MEMORY : MILLPOND_E_DEVICE, what,
              std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error))
      .cuda(code)
      .remedy("Look at nvidia-smi; a measurement needs about 2 GB of the device");
}

// The caller's device comes back at the end.
class OnDevice {
 public:
  explicit OnDevice(std::int32_t device) : had_(cudaGetDevice(&before_) == cudaSuccess) {
    check(cudaSetDevice(device), "use a CUDA device");
  }
  ~OnDevice() {
    if (had_) static_cast<void>(cudaSetDevice(before_));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool had_;
};

class Memory {
 public:
  Memory(std::uint64_t bytes, bool pinned) : pinned_(pinned) {
    check(pinned ? cudaMallocHost(&data_, bytes) : cudaMalloc(&data_, bytes), "take memory");
  }
  ~Memory() { static_cast<void>(pinned_ ? cudaFreeHost(data_) : cudaFree(data_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
  bool pinned_;
};

// A stream and the events around what is timed on it.
class Lane {
 public:
  Lane() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
    check(cudaEventCreate(&begin_), "make an event");
    check(cudaEventCreate(&end_), "make an event");
  }
  ~Lane() {
    static_cast<void>(cudaEventDestroy(begin_));
    static_cast<void>(cudaEventDestroy(end_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  cudaStream_t stream() const { return stream_; }
  void begin() { check(cudaEventRecord(begin_, stream_), "record an event"); }
  void end() { check(cudaEventRecord(end_, stream_), "record an event"); }
  // From another lane's begin to this one's end, waited for.
  double seconds_from(const Lane& other) const {
    float milliseconds = 0;
    check(cudaEventSynchronize(end_), "wait for a measurement");
    check(cudaEventElapsedTime(&milliseconds, other.begin_, end_), "read a measurement");
    return milliseconds * 1e-3;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace millpond::plugin::measuring

#endif  // MILLPOND_PLUGIN_PROBE_CUDA_OWNERS_H_
