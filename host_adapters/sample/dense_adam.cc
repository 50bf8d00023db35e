// AdamW on plain arrays: the formula "torch_cpu_fused/1". Compiled once for each instruction set
// and never contracted: a multiplication and an addition round once exactly where fma is written.
#include "host_adapters/sample/bfloat.h"
#include "host_adapters/sample/dense_loops.h"

namespace millpond::sample {
namespace {

// torch walks a tensor in vectors of 8 and does its last numel % 8 elements one by one, with the
// sum for exp_avg_sq rounded the other way round.
constexpr std::size_t kTorchVector = 8;

template <bool kTail>
inline void update(const AdamScalars& s, std::size_t begin, std::size_t end,
                   const float* __restrict grad, float* __restrict main, float* __restrict exp_avg,
                   float* __restrict exp_avg_sq, std::uint16_t* __restrict model) {
  const bool small = s.weight < 0.5F;
  const float weight_less_one = s.weight - 1.0F;
  for (std::size_t i = begin; i < end; ++i) {
    const float g = grad[i] / s.grad_scale;
    float p = main[i] * s.decay;
    const float d = g - exp_avg[i];
    const float m =
        small ? __builtin_fmaf(s.weight, d, exp_avg[i]) : __builtin_fmaf(weight_less_one, d, g);
    const float scaled = s.one_minus_beta2 * g;
    const float v = kTail ? __builtin_fmaf(exp_avg_sq[i], s.beta2, scaled * g)
                          : __builtin_fmaf(scaled, g, exp_avg_sq[i] * s.beta2);
    p = p + s.step_size * m / (__builtin_sqrtf(v) / s.bias2_sqrt + s.eps);
    main[i] = p;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    model[i] = narrow(p);
  }
}

}  // namespace

extern void MILLPOND_DENSE_ADAM(const AdamScalars&, std::size_t, std::size_t, std::size_t,
                                const float*, float*, float*, float*, std::uint16_t*);

void MILLPOND_DENSE_ADAM(const AdamScalars& scalars, std::size_t numel, std::size_t begin,
                         std::size_t end, const float* grad, float* main, float* exp_avg,
                         float* exp_avg_sq, std::uint16_t* model) {
  const std::size_t body = numel - numel % kTorchVector;
  update<false>(scalars, begin, end < body ? end : body, grad, main, exp_avg, exp_avg_sq, model);
  update<true>(scalars, begin > body ? begin : body, end, grad, main, exp_avg, exp_avg_sq, model);
}

}  // namespace millpond::sample
