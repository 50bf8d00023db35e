#include "host_adapters/sample/cuda_device.h"

#include <algorithm>

#include "host_adapters/sample/cuda_kernels.h"
#include "millpond/error.hpp"

namespace millpond::sample {

void check_cuda(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  const std::int32_t kind =
      code == cudaErrorMemoryAllocation ? MILLPOND_E_MEMORY : MILLPOND_E_DEVICE;
  throw Error(kind, what, std::string(cudaGetErrorName(code)) + ": " + cudaGetErrorString(code));
}

int CudaDevice::count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

CudaDevice::CudaDevice(int index) : index_(index) {
  check_cuda(cudaSetDevice(index), "choose CUDA device");
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, index), "look at CUDA device");
  name_ = properties.name;
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
}

CudaDevice::~CudaDevice() {
  if (sums_ != nullptr) cudaFree(sums_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

std::string CudaDevice::description() const {
  return "cuda:" + std::to_string(index_) + " (" + name_ + ")";
}

millpond_stream CudaDevice::stream() const {
  return {MILLPOND_DEVICE_CUDA, index_, reinterpret_cast<std::uint64_t>(stream_)};
}

void* CudaDevice::allocate(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, std::max<std::size_t>(bytes, 256)), "allocate device memory");
  check_cuda(cudaMemsetAsync(memory, 0, bytes, stream_), "zero device memory");
  return memory;
}

void CudaDevice::release(void* memory) noexcept { cudaFree(memory); }

std::uint64_t CudaDevice::bytes_in_use() const {
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "ask for device memory");
  return total - free;
}

void CudaDevice::upload(void* to, const void* from, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "upload");
  check_cuda(cudaStreamSynchronize(stream_), "upload");
}

void CudaDevice::download(void* to, const void* from, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "download");
  check_cuda(cudaStreamSynchronize(stream_), "download");
}

void CudaDevice::copy(void* to, const void* from, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copy");
}

void CudaDevice::finish() { check_cuda(cudaStreamSynchronize(stream_), "finish"); }

void CudaDevice::add(float* into, const float* from, std::size_t count) {
  cuda::add(into, from, count, stream_);
  check_cuda(cudaGetLastError(), "add gradients");
}

void CudaDevice::slice_squares(const float* values, std::size_t slices, double* sums) {
  if (slices > sums_count_) {
    if (sums_ != nullptr) cudaFree(sums_);
    sums_ = nullptr;
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, slices * sizeof(double)), "allocate device memory");
    sums_ = static_cast<double*>(memory);
    sums_count_ = slices;
  }
  cuda::slice_squares(values, slices, sums_, stream_);
  check_cuda(cudaGetLastError(), "sum squares");
  download(sums, sums_, slices * sizeof(double));
}

}  // namespace millpond::sample
