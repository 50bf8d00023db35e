// The table of option keys: name, the minor that introduced it, and how its value is read.
#ifndef MILLPOND_PLUGIN_OPTIONS_KEYS_H_
#define MILLPOND_PLUGIN_OPTIONS_KEYS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "millpond/error.hpp"
#include "plugin/options/options.h"

namespace millpond::plugin {

struct OptionKey {
  std::string_view name;
  std::uint32_t since_minor;
  // Throws Error(E_OPTION) when the value has the wrong type or is out of range.
  void (*read)(std::string_view name, const nlohmann::json& value, Options& options);
};

std::span<const OptionKey> option_keys();

// Error(E_OPTION) of field "options.<key>"; "options" where key is empty.
Error option_error(std::string_view key, std::string reason, std::string remedy);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_OPTIONS_KEYS_H_
