// The processor: host memory, and a team of threads.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_CPU_DEVICE_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_CPU_DEVICE_H_

#include "host_adapters/sample/device.h"
#include "host_adapters/sample/workers.h"

namespace millpond::sample {

class CpuDevice : public Device {
 public:
  // 0: as many threads as the process may use.
  explicit CpuDevice(std::size_t threads) : workers_(threads) {}

  Workers& workers() { return workers_; }

  std::string description() const override;
  millpond_stream stream() const override { return {MILLPOND_DEVICE_CPU, 0, 0}; }
  void* allocate(std::size_t bytes) override;
  void release(void* memory) noexcept override;
  std::uint64_t bytes_in_use() const override { return 0; }
  void upload(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override;
  void add(float* into, const float* from, std::size_t count) override;
  void slice_squares(const float* values, std::size_t slices, double* sums) override;

 private:
  Workers workers_;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_CPU_DEVICE_H_
