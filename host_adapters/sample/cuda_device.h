// One CUDA device: its memory, one stream of its own, and sums by plain kernels. Built only where
// the CUDA toolkit is (MILLPOND_SAMPLE_CUDA).
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_CUDA_DEVICE_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_CUDA_DEVICE_H_

#include <cuda_runtime_api.h>

#include <string>

#include "host_adapters/sample/device.h"

namespace millpond::sample {

// Throws Error(E_DEVICE) with CUDA's own name and words where `code` is not success.
void check_cuda(cudaError_t code, const char* what);

class CudaDevice : public Device {
 public:
  // Makes device `index` this thread's current one. Throws Error(E_DEVICE) where it is not there.
  explicit CudaDevice(int index);
  ~CudaDevice() override;
  // How many there are; 0 also without a driver.
  static int count();

  cudaStream_t cuda_stream() const { return stream_; }

  std::string description() const override;
  millpond_stream stream() const override;
  void* allocate(std::size_t bytes) override;
  void release(void* memory) noexcept override;
  std::uint64_t bytes_in_use() const override;
  void upload(void* to, const void* from, std::size_t bytes) override;
  void download(void* to, const void* from, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void finish() override;
  void add(float* into, const float* from, std::size_t count) override;
  void slice_squares(const float* values, std::size_t slices, double* sums) override;

 private:
  int index_;
  cudaStream_t stream_ = nullptr;
  std::string name_;
  double* sums_ = nullptr;  // on the device
  std::size_t sums_count_ = 0;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_CUDA_DEVICE_H_
