// What a pinned host tier costs by the plainest way: pages touched by all processors, then
// registered.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "plugin/io/sizes.h"
#include "plugin/probe/cuda.h"
#include "plugin/probe/cuda_owners.h"
#include "plugin/probe/pages.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kChunk = 16 << 20;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void touch(std::byte* data, std::uint64_t bytes, std::uint32_t threads) {
  std::atomic<std::uint64_t> next{0};
  const auto work = [&] {
    for (;;) {
      const std::uint64_t begin = next.fetch_add(kChunk);
      if (begin >= bytes) return;
      const std::uint64_t end = std::min(begin + kChunk, bytes);
      for (std::uint64_t at = begin; at < end; at += kPage) {
        *reinterpret_cast<volatile std::byte*>(data + at) = std::byte{0};
      }
    }
  };
  std::vector<std::jthread> helpers;
  for (std::uint32_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
}

}  // namespace

PinTime measure_pin(std::int32_t device, std::uint64_t bytes, std::uint32_t threads) {
  const measuring::OnDevice on(device);
  measuring::check(cudaFree(nullptr), "make the device's context");  // not a part of pinning
  PinTime time;
  time.threads = threads != 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
  auto begin = std::chrono::steady_clock::now();
  const Pages pages(bytes);
  touch(pages.data(), pages.bytes(), time.threads);
  time.touch_seconds = seconds_since(begin);
  begin = std::chrono::steady_clock::now();
  measuring::check(cudaHostRegister(pages.data(), pages.bytes(),
                                    cudaHostRegisterPortable | cudaHostRegisterMapped),
                   "pin host memory");
  time.register_seconds = seconds_since(begin);
  measuring::check(cudaHostUnregister(pages.data()), "unpin host memory");
  return time;
}

}  // namespace millpond::plugin
