#include "host_adapters/sample/dense.h"

#include <algorithm>

namespace millpond::sample {

const DenseLoops& best_dense_loops() {
#if defined(__x86_64__)
  static const DenseLoops& best = []() -> const DenseLoops& {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (avx512 && avx2) return kDenseLoopsAvx512;
    if (avx2) return kDenseLoopsAvx2;
    return kDenseLoopsBase;
  }();
  return best;
#else
  return kDenseLoopsBase;
#endif
}

Dense::Dense(Workers& workers) : workers_(workers), loops_(best_dense_loops()) {}

void Dense::multiply(const View& a, const View& b, float* c) {
  const std::size_t width = loops_.panel_columns;
  const std::size_t panels = (b.columns + width - 1) / width;
  packed_.resize(std::max(packed_.size(), panels * width * b.rows));
  workers_.run(panels, [&](std::size_t panel) {
    loops_.pack_panel(b, panel, packed_.data() + panel * width * b.rows);
  });
  const std::size_t rows = loops_.block_rows;
  workers_.run((a.rows + rows - 1) / rows, [&](std::size_t block) {
    alignas(64) thread_local float scratch[64 * kDepth];
    loops_.multiply_rows(a, packed_.data(), b.columns, block * rows,
                         std::min(a.rows, (block + 1) * rows), scratch, c);
  });
}

void Dense::column_sums(const View& m, float* sums) {
  constexpr std::size_t kSlice = 64;
  workers_.run((m.columns + kSlice - 1) / kSlice, [&](std::size_t slice) {
    const std::size_t first = slice * kSlice;
    const std::size_t last = std::min(m.columns, first + kSlice);
    std::fill(sums + first, sums + last, 0.0F);
    for (std::size_t i = 0; i < m.rows; ++i) {
      const float* row = m.data + i * m.row_stride;
      for (std::size_t j = first; j < last; ++j) sums[j] += row[j];
    }
  });
}

}  // namespace millpond::sample
