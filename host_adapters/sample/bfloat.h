// bfloat16 as the upper half of an fp32. Always inlined: code compiled for a newer instruction set
// must not be shared with code that runs everywhere.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_BFLOAT_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_BFLOAT_H_

#include <cstdint>
#include <cstring>

namespace millpond::sample {

using Bfloat = std::uint16_t;

[[gnu::always_inline]] inline float widen(Bfloat value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

// Round to nearest, ties to even; a NaN stays one.
[[gnu::always_inline]] inline Bfloat narrow(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  return static_cast<Bfloat>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_BFLOAT_H_
