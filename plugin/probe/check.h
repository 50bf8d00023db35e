// One finding about a machine or a directory, and what to do about it.
#ifndef MILLPOND_PLUGIN_PROBE_CHECK_H_
#define MILLPOND_PLUGIN_PROBE_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

namespace millpond::plugin {

enum class CheckVerdict : std::uint8_t {
  kOk,
  kWarning,  // streaming works, slower or with less comfort than it could
  kFailed,   // streaming will not work
};

struct Check {
  std::string name;  // stable: "engine", "o_direct", ...
  CheckVerdict verdict = CheckVerdict::kOk;
  std::string found;   // a phrase with units
  std::string remedy;  // a sentence; empty where nothing is to be done
};
using Checks = std::vector<Check>;

// "1.5 GiB", for `found`.
std::string binary_size(std::uint64_t bytes);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PROBE_CHECK_H_
