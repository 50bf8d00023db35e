#include "plugin/options/nearest.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace millpond::plugin {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the usual table for prefixes of a: two back (for swaps), one back, the present one.
  std::array<std::vector<std::size_t>, 3> rows;
  for (auto& row : rows) row.resize(b.size() + 1);
  std::iota(rows[1].begin(), rows[1].end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& [two_back, one_back, row] = rows;
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = one_back[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({one_back[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], two_back[j - 2] + 1);
    }
    std::rotate(rows.begin(), rows.begin() + 1, rows.end());
  }
  return rows[1][b.size()];
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known) {
  return *std::min_element(known.begin(), known.end(),
                           [name](std::string_view a, std::string_view b) {
                             return edit_distance(name, a) < edit_distance(name, b);
                           });
}

}  // namespace millpond::plugin
