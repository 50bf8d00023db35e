// What a bench measures on a CUDA device beside the steps, through probe/1 and the driver.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_BENCH_CUDA_H_
#define MILLPOND_HOST_ADAPTERS_CLI_BENCH_CUDA_H_

#include <atomic>
#include <cstdint>
#include <thread>

#include "host_adapters/cli/bench.h"
#include "host_adapters/cli/cuda_device.h"
#include "host_adapters/cli/probe.h"
#include "millpond/client/plugin.h"

namespace millpond::cli {

// The most device memory in use while it lives, over what was in use before, as the driver counts;
// looked at every 2 ms from a thread of its own.
class DeviceMemoryWatch {
 public:
  explicit DeviceMemoryWatch(const CudaDevice& device);
  ~DeviceMemoryWatch();
  DeviceMemoryWatch(const DeviceMemoryWatch&) = delete;
  DeviceMemoryWatch& operator=(const DeviceMemoryWatch&) = delete;
  std::uint64_t peak_bytes() const;

 private:
  std::uint64_t before_;
  std::atomic<std::uint64_t> least_;
  std::jthread watcher_;
};

class CudaProbe {
 public:
  // All borrowed.
  CudaProbe(const client::Plugin& plugin, millpond_runtime* runtime, std::int32_t device)
      : plugin_(plugin), runtime_(runtime), device_(device) {}

  // The bus each way and both at once, and the update of many small shards.
  void measure_limits(const BenchArguments& arguments, CudaFigures* figures) const;
  // Both ways at once, the total; the median of `rounds`, of about 25 ms each.
  double bus_bytes_per_s(std::uint32_t rounds) const;
  // Of `bytes`; the second of two counts: the machine has the memory by then.
  void measure_start(std::uint64_t bytes, std::uint32_t threads, CudaFigures* figures) const;

 private:
  Json ceilings(Json request) const;

  const client::Plugin& plugin_;
  millpond_runtime* runtime_;
  std::int32_t device_;
};

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_BENCH_CUDA_H_
