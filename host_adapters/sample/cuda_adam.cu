// The formula of resident_cuda_adam.h. Compiled with -fmad=false: fused exactly where it says so.
#include "host_adapters/sample/cuda_kernels.h"

namespace millpond::sample::cuda {
namespace {

constexpr int kThreads = 256;

__device__ std::uint16_t narrowed(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

__global__ void adam_kernel(AdamStep s, std::size_t count, const float* grad, float* main,
                            float* exp_avg, float* exp_avg_sq, std::uint16_t* model) {
  const float correction1 = 1.0F - powf(s.beta1, s.step);
  const float correction2 = sqrtf(1.0F - powf(s.beta2, s.step));
  const float step_size = s.lr / correction1;
  const float decay = s.lr * s.weight_decay;
  const std::size_t stride = gridDim.x * static_cast<std::size_t>(kThreads);
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(kThreads) + threadIdx.x; i < count;
       i += stride) {
    const float g = grad[i] / s.grad_scale;
    float p = main[i];
    if (s.weight_decay != 0.0F) p = fmaf(-decay, p, p);
    const float m = fmaf(s.beta1, exp_avg[i], fmaf(-s.beta1, g, g));
    const float square = g * g;
    const float v = fmaf(s.beta2, exp_avg_sq[i], fmaf(-s.beta2, square, square));
    p -= (step_size * m) / (sqrtf(v) / correction2 + s.eps);
    main[i] = p;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    model[i] = narrowed(p);
  }
}

}  // namespace

void adam(const AdamStep& step, std::size_t count, const float* grad, float* main, float* exp_avg,
          float* exp_avg_sq, std::uint16_t* model, cudaStream_t stream) {
  if (count == 0) return;
  const std::size_t wanted = (count + kThreads - 1) / kThreads;
  adam_kernel<<<static_cast<unsigned>(wanted < 65535 ? wanted : 65535), kThreads, 0, stream>>>(
      step, count, grad, main, exp_avg, exp_avg_sq, model);
}

}  // namespace millpond::sample::cuda
