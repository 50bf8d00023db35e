#include "tests/kernels/adam_cuda_reference.h"

#include <cuda_runtime.h>

namespace millpond::test {
namespace {

__global__ void te_step(float* p, float* m, float* v, const float* g, std::uint64_t numel,
                        TeStep s) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = blockIdx.x * static_cast<std::uint64_t>(blockDim.x) + threadIdx.x;
       i < numel; i += stride) {
    const float grad = g[i];
    const float first = s.beta1 * m[i] + (1 - s.beta1) * grad;
    const float second = s.beta2 * v[i] + (1 - s.beta2) * grad * grad;
    const float first_unbiased = first / s.bias1;
    const float second_unbiased = second / s.bias2;
    const float denominator = sqrtf(second_unbiased) + s.eps;
    const float update = first_unbiased / denominator + s.weight_decay * p[i];
    p[i] = p[i] - s.lr * update;
    m[i] = first;
    v[i] = second;
  }
}

__global__ void touch(float4* p, float4* m, float4* v, const float4* g, ushort4* model,
                      std::uint64_t quads) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = blockIdx.x * static_cast<std::uint64_t>(blockDim.x) + threadIdx.x;
       i < quads; i += stride) {
    const float4 a = p[i], b = m[i], c = v[i], d = g[i];
    p[i] = make_float4(a.y, a.x, a.w, d.x);
    m[i] = make_float4(b.y, b.x, b.w, d.y);
    v[i] = make_float4(c.y, c.x, c.w, d.z);
    const auto low = static_cast<unsigned short>(__float_as_uint(d.w));
    model[i] = make_ushort4(low, low, low, low);
  }
}

}  // namespace

int te_reference_on_cuda(float* p, float* m, float* v, const float* g, std::uint64_t numel,
                         TeStep step, void* stream) {
  te_step<<<1024, 256, 0, static_cast<cudaStream_t>(stream)>>>(p, m, v, g, numel, step);
  return cudaGetLastError();
}

int touch_on_cuda(float* p, float* m, float* v, const float* g, unsigned short* model,
                  std::uint64_t numel, void* stream) {
  touch<<<132 * 8, 256, 0, static_cast<cudaStream_t>(stream)>>>(
      reinterpret_cast<float4*>(p), reinterpret_cast<float4*>(m), reinterpret_cast<float4*>(v),
      reinterpret_cast<const float4*>(g), reinterpret_cast<ushort4*>(model), numel / 4);
  return cudaGetLastError();
}

}  // namespace millpond::test
