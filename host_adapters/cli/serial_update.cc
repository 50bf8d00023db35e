#include "host_adapters/cli/serial_update.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace millpond::cli {
namespace {

// In pieces that stay in the first-level cache, so that a conversion costs no memory traffic.
constexpr std::uint64_t kPiece = 1024;

float widened(std::uint16_t bits) {
  const std::uint32_t word = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}
// To nearest, ties to even; the values here are finite.
std::uint16_t narrowed(float value) {
  std::uint32_t word;
  std::memcpy(&word, &value, sizeof(word));
  return static_cast<std::uint16_t>((word + 0x7fffU + (word >> 16 & 1U)) >> 16);
}

void widen(const std::uint16_t* from, float* to, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) to[i] = widened(from[i]);
}
void narrow(const float* from, std::uint16_t* to, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) to[i] = narrowed(from[i]);
}
struct Scalars {
  float keep, one_minus_beta1, beta2, one_minus_beta2, step_size, bias2_sqrt, eps;
};

void adam(float* __restrict p, float* __restrict m, float* __restrict v, const float* __restrict g,
          std::uint64_t count, const Scalars& s) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const float exp_avg = m[i] + s.one_minus_beta1 * (g[i] - m[i]);
    const float exp_avg_sq = s.beta2 * v[i] + s.one_minus_beta2 * g[i] * g[i];
    m[i] = exp_avg;
    v[i] = exp_avg_sq;
    p[i] = p[i] * s.keep - s.step_size * exp_avg / (std::sqrt(exp_avg_sq) / s.bias2_sqrt + s.eps);
  }
}

}  // namespace

void serial_widen(const void* model, millpond_dtype dtype, float* main, std::uint64_t count) {
  if (dtype == MILLPOND_DTYPE_BF16) {
    widen(static_cast<const std::uint16_t*>(model), main, count);
  } else {
    std::memcpy(main, model, count * sizeof(float));
  }
}

void serial_update(const SerialRun& run, const SerialAdam& adam_of, std::uint64_t step) {
  const double t = static_cast<double>(step);
  const Scalars scalars = {
      1.0F - adam_of.lr * adam_of.weight_decay,
      1.0F - adam_of.beta1,
      adam_of.beta2,
      1.0F - adam_of.beta2,
      static_cast<float>(double{adam_of.lr} / (1.0 - std::pow(double{adam_of.beta1}, t))),
      static_cast<float>(std::sqrt(1.0 - std::pow(double{adam_of.beta2}, t))),
      adam_of.eps};
  alignas(64) float moments[2][kPiece], gradient[kPiece];
  for (std::uint64_t at = 0; at < run.count; at += kPiece) {
    const std::uint64_t count = std::min(kPiece, run.count - at);
    float* p = run.main == nullptr ? static_cast<float*>(run.model) + at : run.main + at;
    float* m = static_cast<float*>(run.exp_avg) + at;
    float* v = static_cast<float*>(run.exp_avg_sq) + at;
    auto* m16 = static_cast<std::uint16_t*>(run.exp_avg) + at;
    auto* v16 = static_cast<std::uint16_t*>(run.exp_avg_sq) + at;
    const float* g = static_cast<const float*>(run.grad) + at;
    if (run.bf16_moments) {
      widen(m16, m = moments[0], count);
      widen(v16, v = moments[1], count);
    }
    if (run.grad_dtype == MILLPOND_DTYPE_BF16) {
      widen(static_cast<const std::uint16_t*>(run.grad) + at, gradient, count);
      g = gradient;
    }
    adam(p, m, v, g, count, scalars);
    if (run.bf16_moments) {
      narrow(m, m16, count);
      narrow(v, v16, count);
    }
    if (run.main != nullptr) narrow(p, static_cast<std::uint16_t*>(run.model) + at, count);
  }
}

}  // namespace millpond::cli
