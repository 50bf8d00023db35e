// The seam between portable code and the loops compiled for one instruction set. Plain types only:
// an inline function of a library header, compiled here with AVX-512 and merged by the linker,
// would run where it must not.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_DENSE_LOOPS_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_DENSE_LOOPS_H_

#include <cstddef>
#include <cstdint>

namespace millpond::sample {

struct View {
  const float* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t row_stride;  // elements
  std::size_t column_stride;
};

// Scalars of resident Adam for one step of one parameter; see resident_adam.h.
struct AdamScalars {
  float decay, weight, beta2, one_minus_beta2, step_size, bias2_sqrt, eps, grad_scale;
};

struct DenseLoops {
  const char* name;
  std::size_t panel_columns;  // of b that are packed together
  std::size_t block_rows;     // of a that one call should take

  // Packs columns [panel * panel_columns, ...) of b, zero-padded, row by row: b.rows *
  // panel_columns.
  void (*pack_panel)(const View& b, std::size_t panel, float* packed);
  // Rows [first, last) of c = a b, b packed panel after panel; c row-major with `columns` columns.
  // `scratch`: block_rows * kDepth floats.
  void (*multiply_rows)(const View& a, const float* packed, std::size_t columns, std::size_t first,
                        std::size_t last, float* scratch, float* c);
  // Elements [begin, end) of one parameter of `numel`.
  void (*adam)(const AdamScalars& scalars, std::size_t numel, std::size_t begin, std::size_t end,
               const float* grad, float* main, float* exp_avg, float* exp_avg_sq,
               std::uint16_t* model);
};

inline constexpr std::size_t kDepth = 256;  // products summed before a partial sum is stored

extern const DenseLoops kDenseLoopsBase;
extern const DenseLoops kDenseLoopsAvx2;
extern const DenseLoops kDenseLoopsAvx512;

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_DENSE_LOOPS_H_
