#include "host_adapters/sample/cpu_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "host_adapters/sample/layout.h"
#include "millpond/error.hpp"

namespace millpond::sample {
namespace {

constexpr std::size_t kAlignment = 256;     // bytes
constexpr std::size_t kTask = 16 * kSlice;  // elements

}  // namespace

std::string CpuDevice::description() const {
  return "CPU, " + std::to_string(workers_.threads()) + " threads";
}

void* CpuDevice::allocate(std::size_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, std::max(bytes, kAlignment));
  if (memory == nullptr) {
    throw Error(MILLPOND_E_MEMORY, "allocate", "the memory could not be had").want(bytes, 0);
  }
  std::memset(memory, 0, bytes);
  return memory;
}

void CpuDevice::release(void* memory) noexcept { std::free(memory); }

void CpuDevice::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memmove(to, from, bytes);
}

void CpuDevice::add(float* into, const float* from, std::size_t count) {
  workers_.run((count + kTask - 1) / kTask, [&](std::size_t task) {
    const std::size_t last = std::min(count, (task + 1) * kTask);
    for (std::size_t i = task * kTask; i < last; ++i) into[i] += from[i];
  });
}

void CpuDevice::slice_squares(const float* values, std::size_t slices, double* sums) {
  workers_.run(slices, [&](std::size_t slice) {
    double sum = 0.0;
    for (std::size_t i = slice * kSlice; i < (slice + 1) * kSlice; ++i) {
      sum += static_cast<double>(values[i]) * values[i];
    }
    sums[slice] = sum;
  });
}

}  // namespace millpond::sample
