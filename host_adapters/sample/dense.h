// Matrix products, and the loops that a processor's vector unit matters for. One source
// (dense_loops.cc) is compiled for several instruction sets; the best that the processor has is
// chosen once. Sums run in an order that depends on the shapes only: the same bits for every number
// of threads.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_DENSE_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_DENSE_H_

#include <cstddef>
#include <vector>

#include "host_adapters/sample/dense_loops.h"
#include "host_adapters/sample/workers.h"

namespace millpond::sample {

// A row-major matrix, or with swapped strides the transpose of one.
inline View view(const float* data, std::size_t rows, std::size_t columns) {
  return {data, rows, columns, columns, 1};
}
inline View transposed(const View& m) {
  return {m.data, m.columns, m.rows, m.column_stride, m.row_stride};
}

class Dense {
 public:
  explicit Dense(Workers& workers);

  // c = a b, row-major, a.rows by b.columns.
  void multiply(const View& a, const View& b, float* c);
  // sums[j] = the sum over rows of m[i][j], rows in order.
  void column_sums(const View& m, float* sums);

  const DenseLoops& loops() const { return loops_; }

 private:
  Workers& workers_;
  const DenseLoops& loops_;
  std::vector<float> packed_;  // b in panels
};

// The loops for this processor; `name` of the instruction set for messages.
const DenseLoops& best_dense_loops();

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_DENSE_H_
