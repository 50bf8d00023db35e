// The update's own speed, and the memory's limit for it: no drive, no pipeline.
#ifndef MILLPOND_PLUGIN_PROBE_UPDATE_H_
#define MILLPOND_PLUGIN_PROBE_UPDATE_H_

#include <cstdint>
#include <vector>

#include "kernels/adam.h"

namespace millpond::plugin {

struct UpdateRequest {
  std::uint64_t elements = 64 << 20;  // rounded up to whole blocks
  kernels::Storage moments = kernels::Storage::kFp32;
  kernels::Element model = kernels::Element::kBf16;  // kFp32: moments only, the model is the main
  kernels::Element grad = kernels::Element::kFp32;
  kernels::Variant variant = kernels::Variant::kTorchCpuFused;
  std::uint32_t threads = 0;  // 0: processors
  std::uint32_t rounds = 5;   // of each, in turns; the medians count
  // CUDA only: above 1, the tile has this many shards of 1 to 2,000 elements, `elements` is not
  // looked at, and the ceiling moves the bytes of the shards' elements as one shard.
  std::uint32_t shards = 1;
};

// Bytes: what the update must read and write, each once.
struct UpdateRate {
  double update_bytes_per_s = 0;
  double ceiling_bytes_per_s = 0;  // the same loads and stores without arithmetic
  double update_seconds = 0;
  double ceiling_seconds = 0;
  std::uint64_t bytes = 0;
  std::uint64_t elements = 0;
  std::uint32_t threads = 0;

  // Seconds and rates from measurements of `bytes`.
  void take(const std::vector<double>& updates, const std::vector<double>& ceilings);
};

UpdateRate measure_update(const UpdateRequest& request);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PROBE_UPDATE_H_
