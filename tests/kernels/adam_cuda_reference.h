// Plain CUDA kernels that the tests hold ours against: expressions as their frameworks write them,
// contracted as nvcc likes.
#ifndef MILLPOND_TESTS_KERNELS_ADAM_CUDA_REFERENCE_H_
#define MILLPOND_TESTS_KERNELS_ADAM_CUDA_REFERENCE_H_

#include <cstdint>

namespace millpond::test {

struct TeStep {
  float lr, beta1, beta2, eps, weight_decay, bias1, bias2;
};

// One step of Transformer Engine's AdamW formula on fp32 tensors in device memory.
int te_reference_on_cuda(float* p, float* m, float* v, const float* g, std::uint64_t numel,
                         TeStep step, void* stream);

// Reads four tensors, writes three and a 16-bit one: an update's bytes without its arithmetic.
int touch_on_cuda(float* p, float* m, float* v, const float* g, unsigned short* model,
                  std::uint64_t numel, void* stream);

}  // namespace millpond::test

#endif  // MILLPOND_TESTS_KERNELS_ADAM_CUDA_REFERENCE_H_
