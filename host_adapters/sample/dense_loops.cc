// Compiled once for each instruction set; MILLPOND_DENSE_LOOPS is the constant's name. The width of
// a vector follows from the target's flags.
#include "host_adapters/sample/dense_loops.h"

#include <string.h>

namespace millpond::sample {
namespace {

#if defined(__AVX512F__)
constexpr std::size_t kLanes = 16;
constexpr std::size_t kRows = 8;
#elif defined(__AVX2__)
constexpr std::size_t kLanes = 8;
constexpr std::size_t kRows = 6;
#else
constexpr std::size_t kLanes = 4;
constexpr std::size_t kRows = 4;
#endif
constexpr std::size_t kColumns = 2 * kLanes;
constexpr std::size_t kBlockRows = 8 * kRows;

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));

// kRows by kColumns of a product, held in registers. a: kRows values for each k. b: kColumns
// values.
inline void tile(std::size_t depth, const float* a, const float* b, float* out) {
  Vector sum[kRows][2];
  for (std::size_t i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = Vector{};
  for (std::size_t k = 0; k < depth; ++k) {
    Vector left, right;
    memcpy(&left, b, sizeof(left));
    memcpy(&right, b + kLanes, sizeof(right));
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kRows; ++i) {
      sum[i][0] += a[i] * left;
      sum[i][1] += a[i] * right;
    }
    a += kRows;
    b += kColumns;
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    memcpy(out + i * kColumns, &sum[i][0], sizeof(Vector));
    memcpy(out + i * kColumns + kLanes, &sum[i][1], sizeof(Vector));
  }
}

void pack_panel(const View& b, std::size_t panel, float* packed) {
  const std::size_t first = panel * kColumns;
  const std::size_t count = b.columns - first < kColumns ? b.columns - first : kColumns;
  for (std::size_t k = 0; k < b.rows; ++k, packed += kColumns) {
    const float* from = b.data + k * b.row_stride + first * b.column_stride;
    for (std::size_t j = 0; j < count; ++j) packed[j] = from[j * b.column_stride];
    for (std::size_t j = count; j < kColumns; ++j) packed[j] = 0.0F;
  }
}

// Rows [first, last) and products [k0, k0 + depth) of a, kRows values for each k, zero-padded.
void pack_rows(const View& a, std::size_t first, std::size_t last, std::size_t k0,
               std::size_t depth, float* packed) {
  for (std::size_t row = first; row < last; row += kRows) {
    const std::size_t count = last - row < kRows ? last - row : kRows;
    const float* from = a.data + row * a.row_stride + k0 * a.column_stride;
    for (std::size_t k = 0; k < depth; ++k, packed += kRows, from += a.column_stride) {
      for (std::size_t i = 0; i < count; ++i) packed[i] = from[i * a.row_stride];
      for (std::size_t i = count; i < kRows; ++i) packed[i] = 0.0F;
    }
  }
}

void store_tile(const float* sums, bool add, std::size_t rows, std::size_t columns,
                std::size_t stride, float* c) {
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      const float sum = sums[i * kColumns + j];
      c[i * stride + j] = add ? c[i * stride + j] + sum : sum;
    }
  }
}

void multiply_rows(const View& a, const float* packed, std::size_t columns, std::size_t first,
                   std::size_t last, float* scratch, float* c) {
  float sums[kRows * kColumns];
  const std::size_t inner = a.columns;
  for (std::size_t block = first; block < last; block += kBlockRows) {
    const std::size_t end = last - block < kBlockRows ? last : block + kBlockRows;
    for (std::size_t k0 = 0; k0 < inner; k0 += kDepth) {
      const std::size_t depth = inner - k0 < kDepth ? inner - k0 : kDepth;
      pack_rows(a, block, end, k0, depth, scratch);
      for (std::size_t column = 0; column < columns; column += kColumns) {
        const float* b = packed + column * inner + k0 * kColumns;
        const std::size_t width = columns - column < kColumns ? columns - column : kColumns;
        for (std::size_t row = block; row < end; row += kRows) {
          tile(depth, scratch + (row - block) * depth, b, sums);
          store_tile(sums, k0 != 0, end - row < kRows ? end - row : kRows, width, columns,
                     c + row * columns + column);
        }
      }
    }
  }
}

}  // namespace

// Defined in dense_adam.cc, compiled with the same flags but without contraction.
extern void MILLPOND_DENSE_ADAM(const AdamScalars&, std::size_t, std::size_t, std::size_t,
                                const float*, float*, float*, float*, std::uint16_t*);

const DenseLoops MILLPOND_DENSE_LOOPS = {MILLPOND_DENSE_NAME, kColumns,      kBlockRows,
                                         pack_panel,          multiply_rows, MILLPOND_DENSE_ADAM};

}  // namespace millpond::sample
