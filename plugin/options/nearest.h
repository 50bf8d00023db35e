// The known name that a misspelt one most probably meant.
#ifndef MILLPOND_PLUGIN_OPTIONS_NEAREST_H_
#define MILLPOND_PLUGIN_OPTIONS_NEAREST_H_

#include <cstddef>
#include <span>
#include <string_view>

namespace millpond::plugin {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The known name at the smallest distance; of equals the first. `known` must not be empty.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_OPTIONS_NEAREST_H_
