// What streaming is compared with: a store that keeps each bucket in a file and, bucket by bucket,
// reads it through the page cache, updates it, writes it back; nothing overlaps. It is what a
// straightforward store in a training framework does.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_SERIAL_H_
#define MILLPOND_HOST_ADAPTERS_CLI_SERIAL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "host_adapters/cli/tensors.h"

namespace millpond::cli {

struct SerialRequest {
  std::vector<std::string> directories;  // buckets go to them in turn
  std::uint64_t bucket_elements = 0;
  bool bf16_moments = false;  // else fp32
  std::uint32_t threads = 0;  // of the update; 0: processors
};

struct SerialStep {
  double seconds = 0;
  double read_s = 0;
  double update_s = 0;
  double write_s = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
};

class SerialStore {
 public:
  // `done`, `total`: buckets.
  using Beat = std::function<void(std::uint64_t done, std::uint64_t total)>;

  // Mains := parameters, moments := 0, written to unnamed files. Throws Error.
  SerialStore(const SerialRequest& request, const Tensors& tensors, const Beat& beat = {});
  ~SerialStore();
  SerialStore(const SerialStore&) = delete;
  SerialStore& operator=(const SerialStore&) = delete;

  // AdamW, lr 1e-3, betas 0.9 and 0.95, eps 1e-8, weight decay 0.1, as Bench steps the plugin.
  SerialStep step(const Beat& beat = {});

  std::uint64_t buffer_bytes() const { return buffer_.bytes(); }

 private:
  struct Bucket {
    int fd = -1;
    std::string path;
    std::uint64_t begin = 0;
    std::uint64_t elements = 0;
  };
  std::byte* segment(std::uint32_t s, const Bucket& bucket) const;
  std::uint64_t segment_bytes(std::uint32_t s, const Bucket& bucket) const;
  void move(bool reading, const Bucket& bucket) const;
  void on_threads(const Bucket& bucket,
                  const std::function<void(std::uint64_t begin, std::uint64_t end)>& body) const;

  SerialRequest request_;
  const Tensors& tensors_;
  bool has_main_;
  HostPages buffer_;
  std::vector<Bucket> buckets_;
  std::uint64_t steps_ = 0;
};

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_SERIAL_H_
