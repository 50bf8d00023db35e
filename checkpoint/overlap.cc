#include "checkpoint/overlap.h"

#include <algorithm>
#include <cstddef>

namespace millpond::checkpoint {
namespace {

// What both boxes have of one dimension: [begin, end) in global coordinates.
struct Extent {
  std::uint64_t begin = 0, end = 0;
};

Extent common(const Part& a, const Part& b, std::size_t d) {
  return {std::max(a.box_offset[d], b.box_offset[d]),
          std::min(a.box_offset[d] + a.box_shape[d], b.box_offset[d] + b.box_shape[d])};
}

}  // namespace

void for_each_common_run(const Part& a, const Part& b, std::uint64_t begin, std::uint64_t end,
                         const std::function<void(const CommonRun&)>& visit) {
  const std::size_t dims = a.box_shape.size();
  if (begin >= end || a.numel() == 0 || b.numel() == 0) return;
  for (std::size_t d = 0; d < dims; ++d) {
    const Extent extent = common(a, b, d);
    if (extent.begin >= extent.end) return;
  }
  // A run in both boxes' flat order, clipped to both ranges.
  const std::uint64_t first = a.flat_begin + begin;
  const std::uint64_t last = std::min(a.flat_begin + end, a.flat_end);
  const auto clip = [&](std::uint64_t in_a, std::uint64_t in_b, std::uint64_t count) {
    const std::uint64_t skip =
        std::max(in_a < first ? first - in_a : 0, in_b < b.flat_begin ? b.flat_begin - in_b : 0);
    if (skip >= count) return;
    in_a += skip;
    in_b += skip;
    count -= skip;
    if (in_a >= last || in_b >= b.flat_end) return;
    count = std::min({count, last - in_a, b.flat_end - in_b});
    visit({in_a - a.flat_begin, in_b - b.flat_begin, count});
  };

  // Trailing dimensions in which the boxes are equal are one run in both.
  std::size_t outer = dims;
  std::uint64_t inner = 1;
  while (outer > 0 && a.box_offset[outer - 1] == b.box_offset[outer - 1] &&
         a.box_shape[outer - 1] == b.box_shape[outer - 1]) {
    inner *= a.box_shape[--outer];
  }
  if (outer == 0) return clip(0, 0, inner);
  --outer;  // the dimension in which runs are cut; those before it make rows
  const Extent extent = common(a, b, outer);
  const std::uint64_t row_a = a.box_shape[outer] * inner;
  const std::uint64_t row_b = b.box_shape[outer] * inner;
  const std::uint64_t from_a = (extent.begin - a.box_offset[outer]) * inner;
  const std::uint64_t from_b = (extent.begin - b.box_offset[outer]) * inner;
  const std::uint64_t count = (extent.end - extent.begin) * inner;
  for (std::uint64_t row = first / row_a; row <= (last - 1) / row_a; ++row) {
    std::uint64_t rest = row, in_b = 0, stride = 1;
    bool inside = true;
    for (std::size_t d = outer; inside && d-- > 0;) {
      const std::uint64_t at = a.box_offset[d] + rest % a.box_shape[d];
      rest /= a.box_shape[d];
      inside = at >= b.box_offset[d] && at < b.box_offset[d] + b.box_shape[d];
      in_b += (at - b.box_offset[d]) * stride;
      stride *= b.box_shape[d];
    }
    if (inside) clip(row * row_a + from_a, in_b * row_b + from_b, count);
  }
}

}  // namespace millpond::checkpoint
