// The formulas of Adam, once, for every processor: templates over a lane type V that is a float, a
// vector of floats, or a float on a CUDA device. Every rounding is written out: an operator rounds
// once, fma() is one fused operation, and nothing else may be fused (-ffp-contract=off here,
// -fmad=false under nvcc). C++17.
#ifndef MILLPOND_KERNELS_ADAM_MATH_H_
#define MILLPOND_KERNELS_ADAM_MATH_H_

#if defined(__CUDACC__)
#define MILLPOND_HD __host__ __device__ __forceinline__
#else
#define MILLPOND_HD inline __attribute__((always_inline))
#endif

namespace millpond::kernels {

// Main parameter and moments of one element, or of as many as V has lanes.
template <class V>
struct State {
  V main, exp_avg, exp_avg_sq;
};

// torch's lerp: exact at the nearer end.
template <class V>
MILLPOND_HD V lerp(V from, V to, V weight, bool small_weight) {
  const V distance = to - from;
  return small_weight ? fma(weight, distance, from) : fma(weight - V(1.0F), distance, to);
}

// Scalars of torch's CPU kernels and of its optimizers in Python, made in double and cast
// (prepare()).
template <class V>
struct TorchCpuScalars {
  V one_minus_beta1, one_minus_beta2, beta2, decay, step_size, bias2_sqrt, eps;
  bool small_weight;  // |1 - beta1| < 0.5
};

// Which product of exp_avg_sq's update is fused: torch's fused kernel does it one way in its vector
// body and the other in the scalar loop over the last numel % 8 elements.
enum class SquareOrder { kBody, kTail };

// Square roots are a policy: correctly rounded, or MKL's.
struct IeeeRoot {
  template <class V>
  static MILLPOND_HD V root(V x) {
    return square_root(x);
  }
};

template <SquareOrder kOrder, class Root, class V>
MILLPOND_HD void torch_cpu_adam(State<V>& s, V grad, const TorchCpuScalars<V>& c) {
  const V main = s.main * c.decay;
  s.exp_avg = lerp(s.exp_avg, grad, c.one_minus_beta1, c.small_weight);
  const V scaled = c.one_minus_beta2 * grad;
  s.exp_avg_sq = kOrder == SquareOrder::kBody ? fma(scaled, grad, s.exp_avg_sq * c.beta2)
                                              : fma(s.exp_avg_sq, c.beta2, scaled * grad);
  const V denominator = Root::root(s.exp_avg_sq) / c.bias2_sqrt + c.eps;
  s.main = main + (c.step_size * s.exp_avg) / denominator;
}

// Transformer Engine's AdamW, contracted as nvcc contracts it.
template <class V>
struct TeScalars {
  V lr, beta1, beta2, one_minus_beta1, one_minus_beta2, bias1, bias2, eps, weight_decay;
};

template <class V>
MILLPOND_HD void te_adam(State<V>& s, V grad, const TeScalars<V>& c) {
  s.exp_avg = fma(c.one_minus_beta1, grad, c.beta1 * s.exp_avg);
  s.exp_avg_sq = fma(grad, c.one_minus_beta2 * grad, c.beta2 * s.exp_avg_sq);
  const V direction = (s.exp_avg / c.bias1) / (square_root(s.exp_avg_sq / c.bias2) + c.eps);
  s.main = fma(-c.lr, fma(c.weight_decay, s.main, direction), s.main);
}

// The same built with --use_fast_math, as Transformer Engine and apex build it; V's operations are
// then approximate and flush subnormals.
template <class V>
MILLPOND_HD void te_fast_adam(State<V>& s, V grad, const TeScalars<V>& c) {
  s.exp_avg = fma(s.exp_avg, c.beta1, c.one_minus_beta1 * grad);
  s.exp_avg_sq = fma(s.exp_avg_sq, c.beta2, grad * (c.one_minus_beta2 * grad));
  const V direction = (s.exp_avg / c.bias1) / (square_root(s.exp_avg_sq / c.bias2) + c.eps);
  s.main = fma(-fma(s.main, c.weight_decay, direction), c.lr, s.main);
}

// torch's fused CUDA kernel since 2.11. `decay` is lr * weight_decay in fp32, 0 where there is
// none.
template <class V>
struct TorchCudaFusedScalars {
  V beta1, beta2, decay, step_size, bias2_sqrt, eps;
  bool decays;
};

template <class V>
MILLPOND_HD void torch_cuda_fused_adam(State<V>& s, V grad, const TorchCudaFusedScalars<V>& c) {
  const V main = c.decays ? fma(-c.decay, s.main, s.main) : s.main;
  s.exp_avg = fma(c.beta1, s.exp_avg, fma(-c.beta1, grad, grad));
  const V square = grad * grad;
  s.exp_avg_sq = fma(c.beta2, s.exp_avg_sq, fma(-c.beta2, square, square));
  const V denominator = square_root(s.exp_avg_sq) / c.bias2_sqrt + c.eps;
  s.main = main - (c.step_size * s.exp_avg) / denominator;
}

// torch's foreach and single-tensor optimizers on CUDA: one kernel an operation. The single-tensor
// one divides by a scalar by multiplying with its reciprocal, which is then what bias2_sqrt holds.
template <bool kReciprocal, class V>
MILLPOND_HD void torch_cuda_foreach_adam(State<V>& s, V grad, const TorchCpuScalars<V>& c) {
  const V main = s.main * c.decay;
  s.exp_avg = lerp(s.exp_avg, grad, c.one_minus_beta1, c.small_weight);
  s.exp_avg_sq = fma(c.one_minus_beta2, grad * grad, s.exp_avg_sq * c.beta2);
  const V root = square_root(s.exp_avg_sq);
  const V denominator = (kReciprocal ? root * c.bias2_sqrt : root / c.bias2_sqrt) + c.eps;
  s.main = fma(c.step_size, s.exp_avg / denominator, main);
}

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_ADAM_MATH_H_
