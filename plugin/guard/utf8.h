// Protocol Buffers strings are UTF-8; keys travel on into JSON, which demands it.
#ifndef MILLPOND_PLUGIN_GUARD_UTF8_H_
#define MILLPOND_PLUGIN_GUARD_UTF8_H_

#include <cstddef>
#include <string_view>

namespace millpond::plugin {

// Bytes of the longest valid beginning: text.size() when all of it is well-formed (no overlong
// forms, no surrogates, nothing above U+10FFFF).
std::size_t valid_utf8(std::string_view text);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_GUARD_UTF8_H_
