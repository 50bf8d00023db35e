#include "plugin/options/nearest.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <random>
#include <string>

namespace millpond::tests {
namespace {

using plugin::edit_distance;

// The distance by its definition, without a table of rows: the cheapest of all last edits.
std::size_t by_definition(const std::string& a, const std::string& b) {
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> known;
  const std::function<std::size_t(std::size_t, std::size_t)> of = [&](std::size_t i,
                                                                      std::size_t j) {
    if (i == 0 || j == 0) return i + j;
    const auto found = known.find({i, j});
    if (found != known.end()) return found->second;
    std::size_t best = std::min(of(i - 1, j) + 1, of(i, j - 1) + 1);
    best = std::min(best, of(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1));
    if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
      best = std::min(best, of(i - 2, j - 2) + 1);
    return known[{i, j}] = best;
  };
  return of(a.size(), b.size());
}

TEST(Nearest, distances_of_known_pairs) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("dierct", "direct"), 1u);
  EXPECT_EQ(edit_distance("abc", "ca"), 3u);
}

TEST(Nearest, distances_are_those_of_the_definition) {
  std::mt19937 random(7);
  const auto any = [&random] {
    std::string text(random() % 9, ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 3000; ++i) {
    const std::string a = any(), b = any();
    ASSERT_EQ(edit_distance(a, b), by_definition(a, b)) << a << " " << b;
  }
}

TEST(Nearest, of_equals_the_first_wins) {
  constexpr std::array<std::string_view, 3> kKnown{"bat", "cat", "hat"};
  EXPECT_EQ(plugin::nearest_name("rat", kKnown), "bat");
  EXPECT_EQ(plugin::nearest_name("hats", kKnown), "hat");
}

}  // namespace
}  // namespace millpond::tests
