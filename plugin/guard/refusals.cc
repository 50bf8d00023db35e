#include "plugin/guard/refusals.h"

#include <fmt/format.h>

#include <utility>

namespace millpond::plugin {

void Refusals::list(std::string_view code, std::string_view subject, std::string reason,
                    std::string_view remedy) {
  listed_.push_back(
      {std::string(code), std::string(subject), std::move(reason), std::string(remedy)});
}

std::vector<Refusal> Refusals::take() {
  for (const auto& [code, count] : counts_) {
    if (count <= kListedPerCode) continue;
    listed_.push_back({std::string(code), "",
                       fmt::format("{} more of this kind are not listed.", count - kListedPerCode),
                       "Mend the listed ones first: they most probably have one cause."});
  }
  counts_.clear();
  return std::move(listed_);
}

}  // namespace millpond::plugin
