// Common elements of parts against a list of every element of both.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "checkpoint/overlap.h"

namespace millpond::checkpoint {
namespace {

// Element of the part -> element of the whole parameter, by coordinates.
std::vector<std::uint64_t> elements(const Part& part, const std::vector<std::uint64_t>& shape) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t flat = part.flat_begin; flat < part.flat_end; ++flat) {
    std::vector<std::uint64_t> at(shape.size());
    std::uint64_t rest = flat;
    for (std::size_t d = shape.size(); d-- > 0;) {
      at[d] = part.box_offset[d] + rest % part.box_shape[d];
      rest /= part.box_shape[d];
    }
    std::uint64_t global = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) global = global * shape[d] + at[d];
    all.push_back(global);
  }
  return all;
}

TEST(Overlap, is_what_a_list_of_all_elements_says) {
  std::mt19937_64 random(5);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  std::uint64_t with_runs = 0;
  for (int round = 0; round < 12'000; ++round) {
    std::vector<std::uint64_t> shape;
    for (std::uint64_t d = below(4); shape.size() <= d;) shape.push_back(1 + below(7));
    if (round % 50 == 0) shape.clear();  // a scalar
    const auto random_part = [&] {
      Part part;
      std::uint64_t volume = 1;
      for (const std::uint64_t size : shape) {
        // Whole dimensions often, as real boxes have them.
        const std::uint64_t offset = below(2) == 0 ? 0 : below(size);
        part.box_offset.push_back(offset);
        part.box_shape.push_back(offset == 0 && below(2) == 0 ? size : 1 + below(size - offset));
        volume *= part.box_shape.back();
      }
      part.flat_begin = below(3) == 0 ? below(volume + 1) : 0;
      part.flat_end = part.flat_begin + below(volume - part.flat_begin + 1);
      if (below(2) == 0) part.flat_end = volume;
      return part;
    };
    const Part a = random_part(), b = random_part();
    const std::uint64_t begin = below(a.numel() + 1), end = begin + below(a.numel() - begin + 1);
    std::map<std::uint64_t, std::uint64_t> in_b;
    const std::vector<std::uint64_t> of_a = elements(a, shape), of_b = elements(b, shape);
    for (std::uint64_t i = 0; i < of_b.size(); ++i) in_b[of_b[i]] = i;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> wanted, found;
    for (std::uint64_t i = begin; i < end; ++i) {
      if (in_b.count(of_a[i]) != 0) wanted.emplace_back(i, in_b[of_a[i]]);
    }
    for_each_common_run(a, b, begin, end, [&](const CommonRun& run) {
      EXPECT_GT(run.count, 0U);
      ++with_runs;
      for (std::uint64_t i = 0; i < run.count; ++i) found.emplace_back(run.a + i, run.b + i);
    });
    ASSERT_EQ(found, wanted) << "round " << round;
  }
  EXPECT_GT(with_runs, 1000U);
}

}  // namespace
}  // namespace millpond::checkpoint
