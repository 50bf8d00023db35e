// One float whose quotients and square roots are correctly rounded without a branch, as long as
// nothing is very large or small; it knows when that was not so. `doubt` is 0 where the value is
// what Lane computes; else it says nothing, and Lane must compute it.
//
// The sequences are those that nvcc makes of __fdiv_rn and __fsqrt_rn for operands in the middle of
// the exponents: an approximation, one step of Newton's, and a correction by the exact remainder.
// They depend on exponents only through overflow and underflow, which the bounds below exclude.
#ifndef MILLPOND_KERNELS_LANES_CUDA_QUICK_CUH_
#define MILLPOND_KERNELS_LANES_CUDA_QUICK_CUH_

#include <cuda_runtime.h>

#include <cstdint>

namespace millpond::kernels {

struct QuickLane {
  float x;
  std::uint32_t doubt = 0;
  QuickLane() = default;
  explicit __device__ __forceinline__ QuickLane(float value) : x(value) {}
  __device__ __forceinline__ QuickLane(float value, std::uint32_t d) : x(value), doubt(d) {}
};

// Bit 30 of this is set unless 2^kLeast <= |x| < 2^(kLeast + 128); bit 31 says nothing.
template <int kLeast>
__device__ __forceinline__ std::uint32_t outside(float x) {
  return __float_as_uint(x) - (static_cast<std::uint32_t>(127 + kLeast) << 23);
}
__device__ __forceinline__ bool doubtful(std::uint32_t doubt) { return (doubt & 0x40000000U) != 0; }

__device__ __forceinline__ QuickLane operator+(QuickLane a, QuickLane b) {
  return {__fadd_rn(a.x, b.x), a.doubt | b.doubt};
}
__device__ __forceinline__ QuickLane operator-(QuickLane a, QuickLane b) {
  return {__fsub_rn(a.x, b.x), a.doubt | b.doubt};
}
__device__ __forceinline__ QuickLane operator*(QuickLane a, QuickLane b) {
  return {__fmul_rn(a.x, b.x), a.doubt | b.doubt};
}
__device__ __forceinline__ QuickLane operator-(QuickLane a) { return {-a.x, a.doubt}; }
__device__ __forceinline__ QuickLane fma(QuickLane a, QuickLane b, QuickLane c) {
  return {__fmaf_rn(a.x, b.x, c.x), a.doubt | b.doubt | c.doubt};
}

// The divisor in [2^-39, 2^89) and the quotient in [2^-64, 2^64): the dividend is then at least
// 2^-103, and the remainder, a multiple of 2^-46 of it, exact.
__device__ __forceinline__ QuickLane operator/(QuickLane a, QuickLane b) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b.x));
  inverse = __fmaf_rn(inverse, __fmaf_rn(-b.x, inverse, 1.0F), inverse);
  const float near = __fmul_rn(a.x, inverse);
  const float quotient = __fmaf_rn(inverse, __fmaf_rn(-b.x, near, a.x), near);
  return {quotient, a.doubt | b.doubt | outside<-39>(b.x) | outside<-64>(quotient)};
}

// In [2^-101, 2^27).
__device__ __forceinline__ QuickLane square_root(QuickLane a) {
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(a.x));
  const float near = __fmul_rn(a.x, inverse);
  const float half = __fmul_rn(inverse, 0.5F);
  const float root = __fmaf_rn(__fmaf_rn(-near, near, a.x), half, near);
  return {root, a.doubt | outside<-101>(a.x)};
}

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_LANES_CUDA_QUICK_CUH_
