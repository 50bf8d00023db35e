// The oracle of the CPU variants: one element at a time, from the formulas as torch and Transformer
// Engine state them. Shares no code with kernels/.
#ifndef MILLPOND_TESTS_KERNELS_PLAIN_ADAM_H_
#define MILLPOND_TESTS_KERNELS_PLAIN_ADAM_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace millpond::test {

struct PlainHyper {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.1;
  std::uint64_t step = 1;
  float grad_scale = 1;
  bool decoupled = true, maximize = false;
};

// One element of torch's CPU Adam. `tail`: it is among the last numel % 8 of the fused kernel.
inline void plain_torch(float& p, float& m, float& v, float g, const PlainHyper& h, bool fused,
                        bool tail) {
  const double t = static_cast<double>(h.step);
  const double bias1 = 1.0 - std::pow(h.beta1, t);
  const double bias2 = 1.0 - std::pow(h.beta2, t);
  const float root = static_cast<float>(fused ? std::sqrt(bias2) : std::pow(bias2, 0.5));
  const float step_size = static_cast<float>(h.lr / bias1);
  const float weight = static_cast<float>(1.0 - h.beta1);
  const float square_weight = static_cast<float>(1.0 - h.beta2);
  const float beta2 = static_cast<float>(h.beta2);
  const float decay = static_cast<float>(h.weight_decay);
  if (h.grad_scale != 1.0F) g /= h.grad_scale;
  if (h.maximize) g = -g;
  if (h.weight_decay != 0) {
    if (h.decoupled) {
      p *= static_cast<float>(1.0 - h.lr * h.weight_decay);
    } else {
      g = std::fma(p, decay, g);
    }
  }
  const float gap = g - m;
  m = weight < 0.5F ? std::fma(weight, gap, m) : std::fma(weight - 1.0F, gap, g);
  if (tail) {
    const float product = (square_weight * g) * g;
    v = std::fma(v, beta2, product);
  } else {
    const float kept = v * beta2;
    v = std::fma(square_weight * g, g, kept);
  }
  const float denominator = std::sqrt(v) / root + static_cast<float>(h.eps);
  const float change = (-step_size * m) / denominator;
  p = p + change;
}

// A whole parameter; bit-exact for torch_cpu_fused/1 and torch_cpu_foreach/1.
inline void plain_torch(std::vector<float>& p, std::vector<float>& m, std::vector<float>& v,
                        const std::vector<float>& g, const PlainHyper& h, bool fused) {
  const std::size_t body = p.size() - p.size() % 8;
  for (std::size_t i = 0; i < p.size(); ++i) {
    plain_torch(p[i], m[i], v[i], g[i], h, fused, fused && i >= body);
  }
}

// Transformer Engine's AdamW in double: no CPU runs the original, so this is met within a
// tolerance.
inline void plain_te(std::vector<double>& p, std::vector<double>& m, std::vector<double>& v,
                     const std::vector<float>& g, const PlainHyper& h) {
  const double beta1 = static_cast<float>(h.beta1);  // the original takes floats
  const double beta2 = static_cast<float>(h.beta2);
  const double bias1 = 1 - std::pow(beta1, static_cast<double>(h.step));
  const double bias2 = 1 - std::pow(beta2, static_cast<double>(h.step));
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double grad = g[i] / h.grad_scale;
    m[i] = beta1 * m[i] + (1 - beta1) * grad;
    v[i] = beta2 * v[i] + (1 - beta2) * grad * grad;
    const double update = m[i] / bias1 / (std::sqrt(v[i] / bias2) + h.eps) + h.weight_decay * p[i];
    p[i] -= h.lr * update;
  }
}

// bfloat16 by hand: nearest, ties to even; finite values only.
inline std::uint16_t plain_bf16(float value) {
  const double magnitude = std::fabs(static_cast<double>(value));
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int place = std::max(exponent - 8, -133);  // log2 of the last place
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(magnitude, -place)), place);
  const float narrow = std::copysign(static_cast<float>(rounded), value);
  std::uint32_t bits;
  std::memcpy(&bits, &narrow, 4);
  return static_cast<std::uint16_t>(bits >> 16);
}

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

// Deterministic numbers over many binades, a few zeros; no library's generator.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  float value(int lowest_exponent, int highest_exponent) {
    const std::uint64_t r = next();
    if (r % 64 == 0) return 0.0F;
    const int span = highest_exponent - lowest_exponent + 1;
    const float mantissa = 1.0F + static_cast<float>(r >> 40) * 0x1p-24F;
    const float magnitude =
        std::ldexp(mantissa, lowest_exponent + static_cast<int>((r >> 8) % span));
    return (r & 128) != 0 ? -magnitude : magnitude;
  }
  std::vector<float> values(std::size_t count, int lowest_exponent, int highest_exponent) {
    std::vector<float> all(count);
    for (float& v : all) v = value(lowest_exponent, highest_exponent);
    return all;
  }

 private:
  std::uint64_t state_;
};

}  // namespace millpond::test

#endif  // MILLPOND_TESTS_KERNELS_PLAIN_ADAM_H_
