// Memory and the few sums over it that a trainer needs beside its model, on one device. Work is
// enqueued in the order of one stream; what gives a result to the host says that it waits.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_DEVICE_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "millpond/base.h"

namespace millpond::sample {

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual std::string description() const = 0;
  // The device and its one stream, as the plugin and the collectives are told of them.
  virtual millpond_stream stream() const = 0;

  // Zeroed, aligned to 256 bytes. Throws Error(E_MEMORY).
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  // Of the whole device, whoever took them: 0 where that means nothing.
  virtual std::uint64_t bytes_in_use() const = 0;

  // From host memory, which may be reused on return; to host memory, which is filled on return.
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  // into += from
  virtual void add(float* into, const float* from, std::size_t count) = 0;
  // sums[i] = the sum of squares of slice i (kSlice elements) in double, in a fixed order; on the
  // host, filled on return.
  virtual void slice_squares(const float* values, std::size_t slices, double* sums) = 0;
};

// Owner of a run of T in a device's memory.
template <class T>
class Array {
 public:
  Array() = default;
  Array(Device& device, std::size_t count)
      : device_(&device), data_(static_cast<T*>(device.allocate(count * sizeof(T)))) {}
  Array(Array&& other) noexcept : device_(other.device_), data_(other.data_) {
    other.data_ = nullptr;
  }
  Array& operator=(Array&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Array() {
    if (data_ != nullptr) device_->release(data_);
  }
  T* get() const { return data_; }

 private:
  Device* device_ = nullptr;
  T* data_ = nullptr;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_DEVICE_H_
