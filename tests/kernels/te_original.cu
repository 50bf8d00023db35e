// Transformer Engine's own AdamW kernel behind a C function, for
// tests/python/test_kernels_original.py. Not a part of any target: TE is a checkout of Transformer
// Engine, the flags are those with which it builds this file.
//   nvcc -std=c++17 --expt-relaxed-constexpr -O3 --use_fast_math -arch=sm_90 -shared
//     -Xcompiler -fPIC -I$TE -I$TE/transformer_engine -I$TE/transformer_engine/common
//     -I$TE/transformer_engine/common/include tests/kernels/te_original.cu -o libte_original.so
#include "multi_tensor/adam.cu"

// AdamW on one tensor with bf16 parameters and fp32 gradients, launched as multi_tensor_adam_cuda
// does. `master` to `grad`: device memory. Returns a cudaError_t.
extern "C" __attribute__((visibility("default"))) int te_original(
    void* parameter, float* master, float* exp_avg, float* exp_avg_sq, float* grad,
    unsigned long long numel, float lr, float beta1, float beta2, float eps, float weight_decay,
    int step, void* stream) {
  using namespace transformer_engine::multi_tensor_adam;
  constexpr int kChunk = 65'536, kMostBlocks = 320;
  const float bias1 = 1 - std::pow(beta1, step), bias2 = 1 - std::pow(beta2, step);
  TensorListMetadata<5> list{};
  list.sizes[0] = static_cast<int>(numel);
  void* const addresses[5] = {grad, parameter, exp_avg, exp_avg_sq, master};
  for (int i = 0; i < 5; ++i) list.addresses[i][0] = addresses[i];
  const int chunks = static_cast<int>((numel + kChunk - 1) / kChunk);
  for (int first = 0; first < chunks; first += kMostBlocks) {
    const int blocks = std::min(kMostBlocks, chunks - first);
    for (int i = 0; i < blocks; ++i) list.block_to_chunk[i] = first + i;
    multi_tensor_apply_kernel<<<blocks, BLOCK_SIZE, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<int64_t>(kChunk), static_cast<int*>(nullptr), list,
        AdamFunctorMaster<__nv_bfloat16, float, float, float, int32_t>(), beta1, beta2, bias1,
        bias2, eps, lr, ADAM_MODE_1, weight_decay);
  }
  return cudaGetLastError();
}
