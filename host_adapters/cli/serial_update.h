// AdamW as plain loops, for the serial store only: the plugin's own kernels are not a host's
// business, and the comparison needs an update that does not hold the serial store back.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_SERIAL_UPDATE_H_
#define MILLPOND_HOST_ADAPTERS_CLI_SERIAL_UPDATE_H_

#include <cstdint>

#include "millpond/base.h"

namespace millpond::cli {

struct SerialAdam {
  float lr = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float eps = 1e-8F;
  float weight_decay = 0.1F;
};

// `count` elements. main NULL: the parameter, fp32, is its own; else the parameter is bf16. Moments
// are bf16 where `bf16_moments`, else fp32. step: from 1.
struct SerialRun {
  float* main = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* model = nullptr;
  const void* grad = nullptr;
  millpond_dtype grad_dtype = MILLPOND_DTYPE_FP32;
  bool bf16_moments = false;
  std::uint64_t count = 0;
};
void serial_update(const SerialRun& run, const SerialAdam& adam, std::uint64_t step);
// mains := parameters
void serial_widen(const void* model, millpond_dtype dtype, float* main, std::uint64_t count);

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_SERIAL_UPDATE_H_
