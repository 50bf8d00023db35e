// Collects refusals while the checks run. A profile with a million bad shards must not make a
// report of gigabytes, so each code is listed at most kListedPerCode times; one closing entry per
// code then says how many more there are.
#ifndef MILLPOND_PLUGIN_GUARD_REFUSALS_H_
#define MILLPOND_PLUGIN_GUARD_REFUSALS_H_

#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/guard/profile.h"

namespace millpond::plugin {

inline constexpr std::uint64_t kListedPerCode = 1000;

class Refusals {
 public:
  // `code` is a constant of codes.h; reason and remedy are whole sentences. A reason may be a
  // function that makes the sentence, called only if it is going to be listed.
  template <std::invocable Reason>
  void add(std::string_view code, std::string_view subject, Reason reason,
           std::string_view remedy) {
    if (count(code)) list(code, subject, reason(), remedy);
  }
  void add(std::string_view code, std::string_view subject, std::string_view reason,
           std::string_view remedy) {
    if (count(code)) list(code, subject, std::string(reason), remedy);
  }

  std::vector<Refusal> take();

 private:
  bool count(std::string_view code) { return ++counts_[code] <= kListedPerCode; }
  void list(std::string_view code, std::string_view subject, std::string reason,
            std::string_view remedy);

  std::map<std::string_view, std::uint64_t> counts_;
  std::vector<Refusal> listed_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_GUARD_REFUSALS_H_
