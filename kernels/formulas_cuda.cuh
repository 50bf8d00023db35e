// The variants that a CUDA device computes, on one element each: adam_math.h's formulas with their
// scalars, and the one that is partly in double. Compiled with -fmad=false.
#ifndef MILLPOND_KERNELS_FORMULAS_CUDA_CUH_
#define MILLPOND_KERNELS_FORMULAS_CUDA_CUH_

#include <cuda_runtime.h>

#include "kernels/adam.h"
#include "kernels/adam_math.h"
#include "kernels/lanes_cuda_fast.cuh"
#include "kernels/lanes_cuda_quick.cuh"
#include "kernels/lanes_portable.h"

namespace millpond::kernels {

// torch's fused CUDA kernel before it computed in float (2.6): products and sums that a scalar
// takes part in are double, and rounded once each. `decay` is lr * weight_decay.
struct TorchCudaWideScalars {
  double beta1, beta2, decay, weight_decay, eps;
  float step_size, bias2_sqrt;
  bool decays;
};

// L2 weight decay of that kernel.
__device__ __forceinline__ float torch_cuda_wide_l2(float grad, float main,
                                                    const TorchCudaWideScalars& c) {
  return static_cast<float>(
      __fma_rn(static_cast<double>(main), c.weight_decay, static_cast<double>(grad)));
}

__device__ __forceinline__ void torch_cuda_wide_adam(State<float>& s, float grad,
                                                     const TorchCudaWideScalars& c) {
  const double g = grad;
  const auto old = static_cast<double>(s.main);
  const float main = c.decays ? static_cast<float>(__fma_rn(-c.decay, old, old)) : s.main;
  s.exp_avg =
      static_cast<float>(__fma_rn(static_cast<double>(s.exp_avg), c.beta1, g * (1.0 - c.beta1)));
  s.exp_avg_sq = static_cast<float>(
      __fma_rn(static_cast<double>(s.exp_avg_sq), c.beta2, g * (g * (1.0 - c.beta2))));
  const float root = __fdiv_rn(__fsqrt_rn(s.exp_avg_sq), c.bias2_sqrt);
  const auto denominator = static_cast<float>(static_cast<double>(root) + c.eps);
  s.main = main - __fdiv_rn(c.step_size * s.exp_avg, denominator);
}

// L is Lane, or QuickLane where kHasQuick says so.
template <Variant kVariant, class L>
struct Formula;

template <Variant kVariant>
inline constexpr bool kHasQuick = false;
template <>
inline constexpr bool kHasQuick<Variant::kTorchCudaFused2> = true;
template <>
inline constexpr bool kHasQuick<Variant::kTorchCudaForeach> = true;
template <>
inline constexpr bool kHasQuick<Variant::kTorchCudaSingle> = true;
template <>
inline constexpr bool kHasQuick<Variant::kTeFusedAdam> = true;

template <class L>
__device__ __forceinline__ TorchCpuScalars<L> python_scalars(const Scalars& s) {
  return {L(s.one_minus_beta1), L(s.one_minus_beta2), L(s.beta2), L(s.decay),
          L(s.step_size),       L(s.bias2_sqrt),      L(s.eps),   fabsf(s.one_minus_beta1) < 0.5F};
}

template <class L>
__device__ __forceinline__ TeScalars<L> te_scalars(const Scalars& s) {
  return {L(s.lr),    L(s.beta1), L(s.beta2), L(s.one_minus_beta1), L(s.one_minus_beta2),
          L(s.bias1), L(s.bias2), L(s.eps),   L(s.weight_decay)};
}

template <class L>
struct Formula<Variant::kTorchCudaForeach, L> {
  TorchCpuScalars<L> c;
  __device__ explicit Formula(const Scalars& s) : c(python_scalars<L>(s)) {}
  __device__ void operator()(State<L>& state, L grad) const {
    torch_cuda_foreach_adam<false>(state, grad, c);
  }
};
template <class L>
struct Formula<Variant::kTorchCudaSingle, L> {
  TorchCpuScalars<L> c;
  __device__ explicit Formula(const Scalars& s) : c(python_scalars<L>(s)) {}
  __device__ void operator()(State<L>& state, L grad) const {
    torch_cuda_foreach_adam<true>(state, grad, c);
  }
};
template <class L>
struct Formula<Variant::kTorchCudaFused2, L> {
  TorchCudaFusedScalars<L> c;
  __device__ explicit Formula(const Scalars& s)
      : c{L(s.beta1),      L(s.beta2), L(s.lr) * L(s.weight_decay),          L(s.step_size),
          L(s.bias2_sqrt), L(s.eps),   s.decoupled && s.weight_decay != 0.0F} {}
  __device__ void operator()(State<L>& state, L grad) const {
    torch_cuda_fused_adam(state, grad, c);
  }
};
template <class L>
struct Formula<Variant::kTeFusedAdam, L> {
  TeScalars<L> c;
  __device__ explicit Formula(const Scalars& s) : c(te_scalars<L>(s)) {}
  __device__ void operator()(State<L>& state, L grad) const { te_adam(state, grad, c); }
};

template <>
struct Formula<Variant::kTeFusedAdamFast, Lane> {
  TeScalars<FastLane> c;
  __device__ explicit Formula(const Scalars& s) : c(te_scalars<FastLane>(s)) {}
  __device__ void operator()(State<Lane>& state, Lane grad) const {
    State<FastLane> fast{FastLane(state.main.x), FastLane(state.exp_avg.x),
                         FastLane(state.exp_avg_sq.x)};
    te_fast_adam(fast, FastLane(grad.x), c);
    state = {Lane(fast.main.x), Lane(fast.exp_avg.x), Lane(fast.exp_avg_sq.x)};
  }
};

__device__ __forceinline__ TorchCudaWideScalars wide_scalars(const Scalars& s) {
  return {s.beta1_d,
          s.beta2_d,
          s.lr_d * s.weight_decay_d,
          s.weight_decay_d,
          s.eps_d,
          s.step_size,
          s.bias2_sqrt,
          s.decoupled && s.weight_decay_d != 0.0};
}

template <>
struct Formula<Variant::kTorchCudaFused1, Lane> {
  TorchCudaWideScalars c;
  __device__ explicit Formula(const Scalars& s) : c(wide_scalars(s)) {}
  __device__ void operator()(State<Lane>& state, Lane grad) const {
    State<float> wide{state.main.x, state.exp_avg.x, state.exp_avg_sq.x};
    torch_cuda_wide_adam(wide, grad.x, c);
    state = {Lane(wide.main), Lane(wide.exp_avg), Lane(wide.exp_avg_sq)};
  }
};

// Whether anything comes before the formula. Without branches: the loads are then one wait.
__device__ __forceinline__ bool shapes(const Scalars& s) {
  const bool l2 = !s.decoupled & (s.weight_decay != 0.0F);
  return (s.grad_scale != 1.0F) | s.maximize | l2;
}

// What comes before the formula: scaling, direction, weight decay as part of the gradient (L2).
template <Variant kVariant>
__device__ __forceinline__ Lane shaped(Lane grad, Lane main, const Scalars& s) {
  if (s.grad_scale != 1.0F) grad = grad / Lane(s.grad_scale);
  if (s.maximize) grad = -grad;
  if (s.decoupled || s.weight_decay == 0.0F) return grad;
  if constexpr (kVariant == Variant::kTorchCudaFused1) {
    return Lane(torch_cuda_wide_l2(grad.x, main.x, wide_scalars(s)));
  }
  return fma(main, Lane(s.weight_decay), grad);
}

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_FORMULAS_CUDA_CUH_
