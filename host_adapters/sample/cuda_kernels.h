// The seam between C++ and the kernels of this folder: what each enqueues in `stream`. All pointers
// are device memory. Sums run in orders that depend on the shapes only. Nothing is checked here:
// a launch that failed is cudaGetLastError's.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_CUDA_KERNELS_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace millpond::sample::cuda {

// A matrix of fp32, or of bf16 where `wide` is NULL, with any strides (elements).
struct Matrix {
  const float* wide;
  const std::uint16_t* narrow;
  std::size_t rows, columns, row_stride, column_stride;
};

// into += from
void add(float* into, const float* from, std::size_t count, cudaStream_t stream);
// sums[i]: squares of kSlice elements, in double
void slice_squares(const float* values, std::size_t slices, double* sums, cudaStream_t stream);
// c = a b, row-major
void multiply(const Matrix& a, const Matrix& b, float* c, cudaStream_t stream);
// out[i * width ...] = table[bytes[i]]
void gather_rows(const std::uint8_t* bytes, std::size_t count, const std::uint16_t* table,
                 std::size_t width, float* out, cudaStream_t stream);
// table[b] = the sum of rows i with bytes[i] == b, in order; all 256 rows of it
void scatter_rows(const std::uint8_t* bytes, std::size_t count, const float* rows,
                  std::size_t width, float* table, cudaStream_t stream);
// values += bias, then max(0, .) where `relu`
void add_bias(float* values, const std::uint16_t* bias, std::size_t rows, std::size_t columns,
              bool relu, cudaStream_t stream);
// error = 0 where the ReLU's output was 0
void mask(float* error, const float* outputs, std::size_t count, cudaStream_t stream);
// sums[j] = the sum of column j, rows in order
void column_sums(const float* m, std::size_t rows, std::size_t columns, float* sums,
                 cudaStream_t stream);
// 256 logits a row: the row's cross-entropy; with `share` != 0 the logits become
// (softmax - target) * share
void softmax(float* logits, const std::uint8_t* targets, std::size_t rows, float share,
             float* row_loss, cudaStream_t stream);

// AdamW on one piece, as torch's fused kernel does it: see resident_cuda_adam.h.
struct AdamStep {
  float lr, beta1, beta2, eps, weight_decay, grad_scale, step;
};
void adam(const AdamStep& step, std::size_t count, const float* grad, float* main, float* exp_avg,
          float* exp_avg_sq, std::uint16_t* model, cudaStream_t stream);
void widen(const std::uint16_t* from, float* to, std::size_t count, cudaStream_t stream);

// `ranks` runs of `count` floats, `stride` apart, summed into the first as a balanced tree.
void sum_tree(float* addends, std::size_t ranks, std::size_t count, std::size_t stride,
              cudaStream_t stream);

}  // namespace millpond::sample::cuda

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_CUDA_KERNELS_H_
