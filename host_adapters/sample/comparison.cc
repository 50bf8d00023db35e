#include "host_adapters/sample/comparison.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace millpond::sample {

Different::Different(const Difference& d)
    : text_("step " + std::to_string(d.step) + ": " + d.part + " of " + d.parameter +
            " differs at index " + std::to_string(d.index) + ": " + d.values) {}

void compare_values(const Side& left, const Side& right, std::uint64_t step) {
  const std::vector<Parameter>& parameters = left.model->layout().parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::vector<Bfloat> a = left.model->download(p), b = right.model->download(p);
    const auto place = std::mismatch(a.begin(), a.end(), b.begin());
    if (place.first == a.end()) continue;
    char values[80];
    std::snprintf(values, sizeof(values), "%s 0x%04x, %s 0x%04x", left.name.c_str(), *place.first,
                  right.name.c_str(), *place.second);
    throw Different({parameters[p].name, "parameter",
                     static_cast<std::size_t>(place.first - a.begin()), step, values});
  }
}

void compare_states(Side& left, Side& right, std::uint64_t step) {
  constexpr std::size_t kCount = 1 << 20;
  std::vector<float> a, b;
  const std::vector<Piece>& pieces = left.optimizer->pieces();
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    for (const auto& [part, name] :
         {std::pair{Part::kMain, "main"}, std::pair{Part::kExpAvg, "exp_avg"},
          std::pair{Part::kExpAvgSq, "exp_avg_sq"}}) {
      for (std::size_t begin = 0; begin < pieces[p].numel(); begin += kCount) {
        a.resize(std::min(kCount, pieces[p].numel() - begin));
        b.resize(a.size());
        left.optimizer->read(p, part, begin, a);
        right.optimizer->read(p, part, begin, b);
        if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) continue;
        for (std::size_t i = 0; i < a.size(); ++i) {
          const auto x = std::bit_cast<std::uint32_t>(a[i]), y = std::bit_cast<std::uint32_t>(b[i]);
          if (x == y) continue;
          char values[120];
          std::snprintf(values, sizeof(values), "%s %.9g (0x%08x), %s %.9g (0x%08x)",
                        left.name.c_str(), a[i], x, right.name.c_str(), b[i], y);
          throw Different({left.model->layout().parameters()[pieces[p].parameter].name, name,
                           pieces[p].begin + begin + i, step, values});
        }
      }
    }
  }
}

}  // namespace millpond::sample
