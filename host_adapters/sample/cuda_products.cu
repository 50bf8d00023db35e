// Matrix products: a block makes 64 by 64 of the result, 16 products at a time through shared
// memory, a thread 4 by 4 of it in registers.
#include "host_adapters/sample/cuda_kernels.h"

namespace millpond::sample::cuda {
namespace {

constexpr int kTile = 64;
constexpr int kDepth = 16;
constexpr int kEach = 4;
constexpr int kThreads = (kTile / kEach) * (kTile / kEach);

__device__ float at(const Matrix& m, std::size_t row, std::size_t column) {
  if (row >= m.rows || column >= m.columns) return 0.0F;
  const std::size_t place = row * m.row_stride + column * m.column_stride;
  if (m.wide != nullptr) return m.wide[place];
  return __uint_as_float(static_cast<unsigned>(m.narrow[place]) << 16);
}

// Consecutive threads read consecutive elements, whichever way the matrix lies.
__device__ void load(const Matrix& m, bool by_column, std::size_t row, std::size_t column, int rows,
                     int columns, float* to, bool transpose) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * columns; i += kThreads) {
    const int r = by_column ? i % rows : i / columns;
    const int c = by_column ? i / rows : i % columns;
    const float value = at(m, row + r, column + c);
    to[transpose ? c * (kTile + 1) + r : r * (kTile + 1) + c] = value;
  }
}

__global__ void __launch_bounds__(kThreads) multiply_kernel(Matrix a, Matrix b, float* c) {
  __shared__ float left[kDepth * (kTile + 1)];
  __shared__ float right[kDepth * (kTile + 1)];
  const std::size_t row = blockIdx.y * static_cast<std::size_t>(kTile);
  const std::size_t column = blockIdx.x * static_cast<std::size_t>(kTile);
  const int y = static_cast<int>(threadIdx.x) / (kTile / kEach);
  const int x = static_cast<int>(threadIdx.x) % (kTile / kEach);
  float sums[kEach][kEach] = {};
  for (std::size_t k = 0; k < a.columns; k += kDepth) {
    load(a, a.row_stride == 1, row, k, kTile, kDepth, left, true);
    load(b, b.row_stride == 1, k, column, kDepth, kTile, right, false);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      float l[kEach], r[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        l[i] = left[d * (kTile + 1) + y + i * (kTile / kEach)];
        r[i] = right[d * (kTile + 1) + x + i * (kTile / kEach)];
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) sums[i][j] = fmaf(l[i], r[j], sums[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i) {
    const std::size_t r = row + y + i * (kTile / kEach);
    for (int j = 0; j < kEach; ++j) {
      const std::size_t q = column + x + j * (kTile / kEach);
      if (r < a.rows && q < b.columns) c[r * b.columns + q] = sums[i][j];
    }
  }
}

}  // namespace

void multiply(const Matrix& a, const Matrix& b, float* c, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((b.columns + kTile - 1) / kTile),
                  static_cast<unsigned>((a.rows + kTile - 1) / kTile));
  multiply_kernel<<<grid, kThreads, 0, stream>>>(a, b, c);
}

}  // namespace millpond::sample::cuda
