// One lane with the operations that nvcc makes of float expressions under --use_fast_math:
// quotients and square roots approximate, subnormals flushed. The same instructions on every
// architecture, and written out, so that nothing else is fused.
#ifndef MILLPOND_KERNELS_LANES_CUDA_FAST_CUH_
#define MILLPOND_KERNELS_LANES_CUDA_FAST_CUH_

namespace millpond::kernels {

struct FastLane {
  float x;
  FastLane() = default;
  explicit __device__ __forceinline__ FastLane(float value) : x(value) {}
};

__device__ __forceinline__ FastLane operator*(FastLane a, FastLane b) {
  FastLane r;
  asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(r.x) : "f"(a.x), "f"(b.x));
  return r;
}
__device__ __forceinline__ FastLane operator+(FastLane a, FastLane b) {
  FastLane r;
  asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(r.x) : "f"(a.x), "f"(b.x));
  return r;
}
__device__ __forceinline__ FastLane operator/(FastLane a, FastLane b) {
  FastLane r;
  asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(r.x) : "f"(a.x), "f"(b.x));
  return r;
}
__device__ __forceinline__ FastLane operator-(FastLane a) { return FastLane(-a.x); }
__device__ __forceinline__ FastLane fma(FastLane a, FastLane b, FastLane c) {
  FastLane r;
  asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(r.x) : "f"(a.x), "f"(b.x), "f"(c.x));
  return r;
}
__device__ __forceinline__ FastLane square_root(FastLane a) {
  FastLane r;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(r.x) : "f"(a.x));
  return r;
}

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_LANES_CUDA_FAST_CUH_
