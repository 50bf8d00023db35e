// The oracle: AdamW of torch's fused CPU kernel as a plain loop over one tensor in memory, written
// from its formula (arithmetic "torch_cpu_fused/1"), and the 16-bit formats through doubles. Shares
// no code with the plugin.
#ifndef MILLPOND_TESTS_STORE_PLAIN_ADAM_H_
#define MILLPOND_TESTS_STORE_PLAIN_ADAM_H_

#include <cstdint>
#include <vector>

#include "millpond/base.h"
#include "millpond/host.h"

namespace millpond::tests {

// Round to nearest, ties to even, in the format of the dtype; and back.
std::uint16_t to_half(float value, millpond_dtype dtype);
float from_half(std::uint16_t bits, millpond_dtype dtype);
std::uint64_t bytes_of(millpond_dtype dtype);
void put(std::vector<std::uint8_t>& bytes, millpond_dtype dtype, std::uint64_t i, float value);
float get(const std::vector<std::uint8_t>& bytes, millpond_dtype dtype, std::uint64_t i);

// A resident parameter with its optimizer state.
struct PlainParameter {
  std::vector<float> main, exp_avg, exp_avg_sq;
  std::uint64_t step = 0;

  explicit PlainParameter(std::uint64_t numel) : main(numel), exp_avg(numel), exp_avg_sq(numel) {}

  // One decoupled step; `grads` in the format of the dtype. `step` is counted by the caller.
  void update(const millpond_group_step& group, const std::vector<std::uint8_t>& grads,
              millpond_dtype dtype, float grad_scale, std::uint64_t this_step);
};

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_STORE_PLAIN_ADAM_H_
