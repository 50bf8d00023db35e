#include "plugin/guard/geometry.h"

namespace millpond::plugin {

std::optional<std::uint64_t> element_count(const std::vector<std::uint64_t>& shape) {
  std::uint64_t count = 1;
  bool empty = false;
  for (const std::uint64_t size : shape) {
    empty = empty || size == 0;
    const std::uint64_t factor = size == 0 ? 1 : size;
    if (__builtin_mul_overflow(count, factor, &count) || count >= 1ull << 63) return std::nullopt;
  }
  return empty ? 0 : count;
}

bool boxes_intersect(const Shard& a, const Shard& b) {
  for (std::size_t d = 0; d < a.box_shape.size(); ++d) {
    const bool apart = a.box_offset[d] + a.box_shape[d] <= b.box_offset[d] ||
                       b.box_offset[d] + b.box_shape[d] <= a.box_offset[d];
    if (apart) return false;
  }
  return true;
}

}  // namespace millpond::plugin
