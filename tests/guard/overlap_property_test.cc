// Random shards of small parameters: the guard's sweep against element sets drawn out by hand.
#include <gtest/gtest.h>

#include <random>

#include "tests/guard/profiles.h"

namespace millpond::tests {
namespace {

using Box = std::pair<std::vector<std::uint64_t>, std::vector<std::uint64_t>>;

// Every element's flat index in the global shape, of a 2-dimensional box.
std::set<std::uint64_t> elements_of_box(const v1::Shard& s) {
  std::set<std::uint64_t> elements;
  for (std::uint64_t y = 0; y < s.box_shape(0); ++y)
    for (std::uint64_t x = 0; x < s.box_shape(1); ++x)
      elements.insert((s.box_offset(0) + y) * s.global_shape(1) + s.box_offset(1) + x);
  return elements;
}

bool meet(const std::set<std::uint64_t>& a, const std::set<std::uint64_t>& b) {
  return std::any_of(a.begin(), a.end(), [&b](std::uint64_t e) { return b.contains(e); });
}

Box box_of(const v1::Shard& s) {
  return {{s.box_offset().begin(), s.box_offset().end()},
          {s.box_shape().begin(), s.box_shape().end()}};
}

// Whether two shards of one parameter collide: the same identity; a shared element in one box;
// or different boxes, both in use, that share an element.
bool collide(const v1::Shard& a, const v1::Shard& b) {
  if (a.key() != b.key()) return false;
  if (box_of(a) != box_of(b)) {
    const bool in_use = a.flat_begin() < a.flat_end() && b.flat_begin() < b.flat_end();
    return in_use && meet(elements_of_box(a), elements_of_box(b));
  }
  if (a.flat_begin() == b.flat_begin() && a.flat_end() == b.flat_end()) return true;
  std::set<std::uint64_t> left, right;
  for (std::uint64_t e = a.flat_begin(); e < a.flat_end(); ++e) left.insert(e);
  for (std::uint64_t e = b.flat_begin(); e < b.flat_end(); ++e) right.insert(e);
  return meet(left, right);
}

v1::HostProfile random_profile(std::mt19937_64& random) {
  v1::HostProfile profile = good_profile();
  const v1::Shard model = profile.shards(3);
  profile.clear_shards();
  const auto below = [&random](std::uint64_t limit) { return random() % limit; };
  const std::uint64_t count = 1 + below(6);
  const std::uint64_t boxes = 1 + below(3);
  const std::uint64_t box_seed = random();
  for (std::uint64_t i = 0; i < count; ++i) {
    v1::Shard& s = *profile.add_shards();
    s = model;
    s.set_id(i);
    s.set_key(below(2) == 0 ? "a" : "b");
    // Boxes come from a small set, so that several shards share one.
    std::mt19937_64 box_random(box_seed + below(boxes));
    for (int d = 0; d < 2; ++d) {
      const std::uint64_t size = s.global_shape(d);
      const std::uint64_t begin = box_random() % (size + 1);
      s.set_box_offset(d, begin);
      s.set_box_shape(d, box_random() % (size - begin + 1));
    }
    const std::uint64_t elements = s.box_shape(0) * s.box_shape(1);
    const std::uint64_t begin = below(elements + 1);
    s.set_flat_begin(begin);
    s.set_flat_end(begin + below(elements - begin + 1));
  }
  return profile;
}

TEST(OverlapProperty, refused_exactly_where_elements_are_shared) {
  std::mt19937_64 random(4);
  int refused = 0;
  const int rounds = 20000;
  for (int i = 0; i < rounds; ++i) {
    const v1::HostProfile profile = random_profile(random);
    bool expected = false;
    for (int a = 0; a < profile.shards_size(); ++a)
      for (int b = a + 1; b < profile.shards_size(); ++b)
        expected = expected || collide(profile.shards(a), profile.shards(b));
    const auto refusals = judge(profile);
    for (const auto& refusal : refusals)
      ASSERT_TRUE(refusal.code == "shard_overlap" || refusal.code == "shard_duplicate")
          << refusal.code << " " << refusal.reason;
    ASSERT_EQ(!refusals.empty(), expected) << i << " " << profile.ShortDebugString();
    refused += expected;
  }
  EXPECT_GT(refused, rounds / 10);
  EXPECT_LT(refused, rounds * 9 / 10);
}

}  // namespace
}  // namespace millpond::tests
