// Which elements two shards of one parameter have in common, whatever the boxes and ranges that cut
// the parameter into them: the arithmetic of loading with other ranks than those that saved.
#ifndef MILLPOND_CHECKPOINT_OVERLAP_H_
#define MILLPOND_CHECKPOINT_OVERLAP_H_

#include <cstdint>
#include <functional>
#include <vector>

namespace millpond::checkpoint {

// A part of a parameter: a box of it, flattened in row-major order, and a range of that.
struct Part {
  std::vector<std::uint64_t> box_offset, box_shape;  // one length
  std::uint64_t flat_begin = 0, flat_end = 0;        // in the box
  std::uint64_t numel() const { return flat_end - flat_begin; }
};

// `count` elements of both, one after another: from element `a` of the one and `b` of the other,
// counted from the first element of each part.
struct CommonRun {
  std::uint64_t a = 0, b = 0, count = 0;
};

// Calls visit for the common elements of `a` and `b` among elements [begin, end) of `a`, in a's
// order. Both are parts of one global shape. Time: the rows of a's box that the range touches.
void for_each_common_run(const Part& a, const Part& b, std::uint64_t begin, std::uint64_t end,
                         const std::function<void(const CommonRun&)>& visit);

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_OVERLAP_H_
