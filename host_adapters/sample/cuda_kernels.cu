// Sums and the parts of the model that are not products. Plain kernels: short rather than fast.
#include "host_adapters/sample/cuda_kernels.h"
#include "host_adapters/sample/layout.h"

namespace millpond::sample::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks(std::size_t count) {
  const std::size_t wanted = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(wanted < 65535 ? wanted : 65535);
}

__device__ std::size_t first_index() {
  return blockIdx.x * static_cast<std::size_t>(kThreads) + threadIdx.x;
}
__device__ std::size_t all_threads() { return gridDim.x * static_cast<std::size_t>(kThreads); }

__device__ float widened(std::uint16_t value) {
  return __uint_as_float(static_cast<unsigned>(value) << 16);
}

__global__ void add_kernel(float* into, const float* from, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += all_threads()) into[i] += from[i];
}

// The sum of all threads' values, to thread 0: halves in a fixed order.
template <class T>
__device__ T block_sum(T value) {
  __shared__ T shared[kThreads];
  shared[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  __syncthreads();
  return shared[0];
}

__global__ void squares_kernel(const float* values, double* sums) {
  const float* slice = values + blockIdx.x * kSlice;
  double sum = 0.0;
  for (std::size_t i = threadIdx.x; i < kSlice; i += kThreads) {
    sum += static_cast<double>(slice[i]) * slice[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void gather_kernel(const std::uint8_t* bytes, std::size_t count,
                              const std::uint16_t* table, std::size_t width, float* out) {
  for (std::size_t i = first_index(); i < count * width; i += all_threads()) {
    out[i] = widened(table[bytes[i / width] * width + i % width]);
  }
}

__global__ void scatter_kernel(const std::uint8_t* bytes, std::size_t count, const float* rows,
                               std::size_t width, float* table) {
  for (std::size_t j = threadIdx.x; j < width; j += kThreads) {
    float sum = 0.0F;
    for (std::size_t i = 0; i < count; ++i) {
      if (bytes[i] == blockIdx.x) sum += rows[i * width + j];
    }
    table[blockIdx.x * width + j] = sum;
  }
}

__global__ void bias_kernel(float* values, const std::uint16_t* bias, std::size_t count,
                            std::size_t columns, bool relu) {
  for (std::size_t i = first_index(); i < count; i += all_threads()) {
    const float sum = values[i] + widened(bias[i % columns]);
    values[i] = relu && sum < 0.0F ? 0.0F : sum;
  }
}

__global__ void mask_kernel(float* error, const float* outputs, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += all_threads()) {
    if (!(outputs[i] > 0.0F)) error[i] = 0.0F;
  }
}

__global__ void column_kernel(const float* m, std::size_t rows, std::size_t columns, float* sums) {
  const std::size_t j = first_index();
  if (j >= columns) return;
  float sum = 0.0F;
  for (std::size_t i = 0; i < rows; ++i) sum += m[i * columns + j];
  sums[j] = sum;
}

__global__ void softmax_kernel(float* logits, const std::uint8_t* targets, float share,
                               float* row_loss) {
  __shared__ float largest[kThreads];
  float* row = logits + blockIdx.x * static_cast<std::size_t>(kThreads);
  const float logit = row[threadIdx.x];
  largest[threadIdx.x] = logit;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      largest[threadIdx.x] = fmaxf(largest[threadIdx.x], largest[threadIdx.x + half]);
    }
  }
  __syncthreads();
  // fmaxf passes over NaN; exp does not.
  const float exponential = expf(logit - largest[0]);
  const float sum = block_sum(exponential);
  const bool target = threadIdx.x == targets[blockIdx.x];
  if (target) row_loss[blockIdx.x] = logf(sum) - (logit - largest[0]);
  if (share != 0.0F) row[threadIdx.x] = exponential * (share / sum) - (target ? share : 0.0F);
}

__global__ void widen_kernel(const std::uint16_t* from, float* to, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += all_threads()) to[i] = widened(from[i]);
}

__global__ void tree_kernel(float* addends, std::size_t ranks, std::size_t count,
                            std::size_t stride) {
  for (std::size_t i = first_index(); i < count; i += all_threads()) {
    for (std::size_t distance = 1; distance < ranks; distance *= 2) {
      for (std::size_t rank = 0; rank + distance < ranks; rank += 2 * distance) {
        addends[rank * stride + i] += addends[(rank + distance) * stride + i];
      }
    }
  }
}

}  // namespace

static_assert(kBytes == kThreads, "softmax has a thread a byte");

void add(float* into, const float* from, std::size_t count, cudaStream_t stream) {
  add_kernel<<<blocks(count), kThreads, 0, stream>>>(into, from, count);
}
void slice_squares(const float* values, std::size_t slices, double* sums, cudaStream_t stream) {
  squares_kernel<<<static_cast<unsigned>(slices), kThreads, 0, stream>>>(values, sums);
}
void gather_rows(const std::uint8_t* bytes, std::size_t count, const std::uint16_t* table,
                 std::size_t width, float* out, cudaStream_t stream) {
  gather_kernel<<<blocks(count * width), kThreads, 0, stream>>>(bytes, count, table, width, out);
}
void scatter_rows(const std::uint8_t* bytes, std::size_t count, const float* rows,
                  std::size_t width, float* table, cudaStream_t stream) {
  scatter_kernel<<<kBytes, kThreads, 0, stream>>>(bytes, count, rows, width, table);
}
void add_bias(float* values, const std::uint16_t* bias, std::size_t rows, std::size_t columns,
              bool relu, cudaStream_t stream) {
  bias_kernel<<<blocks(rows * columns), kThreads, 0, stream>>>(values, bias, rows * columns,
                                                               columns, relu);
}
void mask(float* error, const float* outputs, std::size_t count, cudaStream_t stream) {
  mask_kernel<<<blocks(count), kThreads, 0, stream>>>(error, outputs, count);
}
void column_sums(const float* m, std::size_t rows, std::size_t columns, float* sums,
                 cudaStream_t stream) {
  column_kernel<<<blocks(columns), kThreads, 0, stream>>>(m, rows, columns, sums);
}
void softmax(float* logits, const std::uint8_t* targets, std::size_t rows, float share,
             float* row_loss, cudaStream_t stream) {
  softmax_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(logits, targets, share,
                                                                       row_loss);
}
void widen(const std::uint16_t* from, float* to, std::size_t count, cudaStream_t stream) {
  widen_kernel<<<blocks(count), kThreads, 0, stream>>>(from, to, count);
}
void sum_tree(float* addends, std::size_t ranks, std::size_t count, std::size_t stride,
              cudaStream_t stream) {
  tree_kernel<<<blocks(count), kThreads, 0, stream>>>(addends, ranks, count, stride);
}

}  // namespace millpond::sample::cuda
