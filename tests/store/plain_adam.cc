#include "tests/store/plain_adam.h"

#include <cmath>
#include <cstring>

namespace millpond::tests {
namespace {

struct HalfFormat {
  int mantissa;  // explicit bits
  int bias;
  int top;  // largest exponent of a finite value
};

HalfFormat format_of(millpond_dtype dtype) {
  return dtype == MILLPOND_DTYPE_BF16 ? HalfFormat{7, 127, 127} : HalfFormat{10, 15, 15};
}

}  // namespace

std::uint16_t to_half(float value, millpond_dtype dtype) {
  const HalfFormat f = format_of(dtype);
  const int exponent_bits = 15 - f.mantissa;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000u : 0u);
  const auto infinity =
      static_cast<std::uint16_t>(((1u << exponent_bits) - 1u) << static_cast<unsigned>(f.mantissa));
  if (std::isnan(value))
    return static_cast<std::uint16_t>(sign | infinity | 1u << (f.mantissa - 1));
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | infinity;
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - f.bias) exponent = 1 - f.bias;  // subnormal
  // In units of the last place; nearbyint rounds ties to even.
  const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa - exponent));
  const auto whole = static_cast<std::uint64_t>(units);
  const std::uint64_t one = 1ull << static_cast<unsigned>(f.mantissa);
  // A subnormal has biased exponent 0; adding carries a rounded-up mantissa into the exponent.
  const std::uint64_t bits =
      whole < one ? whole
                  : (static_cast<std::uint64_t>(exponent + f.bias) << f.mantissa) + (whole - one);
  return bits >= infinity ? static_cast<std::uint16_t>(sign | infinity)
                          : static_cast<std::uint16_t>(sign | bits);
}

float from_half(std::uint16_t bits, millpond_dtype dtype) {
  const HalfFormat f = format_of(dtype);
  const int exponent_bits = 15 - f.mantissa;
  const int biased = (bits & 0x7FFF) >> f.mantissa;
  const int mantissa = bits & ((1 << f.mantissa) - 1);
  double value;
  if (biased == (1 << exponent_bits) - 1) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (biased == 0) {
    value = std::ldexp(mantissa, 1 - f.bias - f.mantissa);
  } else {
    value = std::ldexp(mantissa + (1 << f.mantissa), biased - f.bias - f.mantissa);
  }
  return static_cast<float>((bits & 0x8000) != 0 ? -value : value);
}

std::uint64_t bytes_of(millpond_dtype dtype) { return dtype == MILLPOND_DTYPE_FP32 ? 4 : 2; }

void put(std::vector<std::uint8_t>& bytes, millpond_dtype dtype, std::uint64_t i, float value) {
  if (dtype == MILLPOND_DTYPE_FP32) {
    std::memcpy(bytes.data() + 4 * i, &value, 4);
    return;
  }
  const std::uint16_t half = to_half(value, dtype);
  std::memcpy(bytes.data() + 2 * i, &half, 2);
}

float get(const std::vector<std::uint8_t>& bytes, millpond_dtype dtype, std::uint64_t i) {
  if (dtype == MILLPOND_DTYPE_FP32) {
    float value;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, bytes.data() + 2 * i, 2);
  return from_half(half, dtype);
}

void PlainParameter::update(const millpond_group_step& group,
                            const std::vector<std::uint8_t>& grads, millpond_dtype dtype,
                            float grad_scale, std::uint64_t this_step) {
  const auto n = static_cast<double>(this_step);
  const double bias1 = 1.0 - std::pow(group.beta1, n);
  const double bias2 = 1.0 - std::pow(group.beta2, n);
  const auto decay = static_cast<float>(1.0 - group.lr * group.weight_decay);
  const auto weight = static_cast<float>(1.0 - group.beta1);
  const auto square = static_cast<float>(1.0 - group.beta2);
  const auto beta2 = static_cast<float>(group.beta2);
  const auto step_size = static_cast<float>(-group.lr / bias1);
  const auto bias2_sqrt = static_cast<float>(std::sqrt(bias2));
  const auto eps = static_cast<float>(group.eps);
  const std::uint64_t numel = main.size();
  const std::uint64_t body = numel / 8 * 8;
  for (std::uint64_t i = 0; i < numel; ++i) {
    float g = get(grads, dtype, i);
    if (grad_scale != 1.0f) g = g / grad_scale;
    if (group.maximize != 0) g = -g;
    float p = main[i];
    p = p * decay;
    float m = exp_avg[i];
    const float difference = g - m;
    m = std::fabs(weight) < 0.5f ? std::fma(weight, difference, m)
                                 : std::fma(weight - 1.0f, difference, g);
    float v = exp_avg_sq[i];
    if (i < body) {
      v = std::fma(square * g, g, v * beta2);
    } else {
      v = std::fma(v, beta2, (square * g) * g);
    }
    p = p + (step_size * m) / (std::sqrt(v) / bias2_sqrt + eps);
    main[i] = p;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
  }
}

}  // namespace millpond::tests
