// A CUDA device through its driver alone, which is opened when a device is asked for: the program
// is built where no toolkit is and runs where no driver is.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_CUDA_DEVICE_H_
#define MILLPOND_HOST_ADAPTERS_CLI_CUDA_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "millpond/host.h"

namespace millpond::cli {

class CudaDevice {
 public:
  // Its primary context becomes this thread's. Throws Error(E_DEVICE) where there is no driver or
  // no such device.
  explicit CudaDevice(std::int32_t index);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  std::int32_t index() const { return index_; }
  const std::string& name() const { return name_; }
  millpond_stream stream() const;  // its own

  void use() const;  // on another thread, before the calls below
  std::uint64_t free_bytes() const;
  void synchronize() const;  // until what is on the stream is over
  // Memory. Copies are over on return.
  std::byte* take(std::uint64_t bytes) const;
  void give_back(std::byte* memory) const noexcept;
  void upload(std::byte* to, const std::byte* from, std::uint64_t bytes) const;
  void copy(std::byte* to, const std::byte* from, std::uint64_t bytes) const;

 private:
  struct Driver;
  void check(int code, const char* what) const;

  std::unique_ptr<const Driver> driver_;
  std::int32_t index_;
  int device_ = 0;
  void* context_ = nullptr;
  void* stream_ = nullptr;
  std::string name_;
};

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_CUDA_DEVICE_H_
