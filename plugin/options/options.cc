#include "plugin/options/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "millpond/error.hpp"
#include "plugin/options/keys.h"
#include "plugin/options/nearest.h"

namespace millpond::plugin {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxText = 1 << 20;
constexpr std::uint64_t kDefaultBlock = 262144;

// At most 48 bytes, cut between characters.
std::string shortened(std::string_view key) {
  std::size_t size = std::min<std::size_t>(key.size(), 48);
  while (size < key.size() && size > 0 && (static_cast<unsigned char>(key[size]) & 0xC0) == 0x80)
    --size;
  return std::string(key.substr(0, size));
}

[[noreturn]] void refuse_unknown(const std::string& key, std::uint32_t minor) {
  std::vector<std::string_view> known;
  for (const OptionKey& option : option_keys()) {
    if (option.name == key)
      throw option_error(key,
                         fmt::format("this option exists since minor {} of the interface, and the "
                                     "host negotiated minor {}",
                                     option.since_minor, minor),
                         "leave it out, or build the host against the newer headers");
    if (option.since_minor <= minor) known.push_back(option.name);
  }
  // A name far longer than every key is no misspelling: its beginning is enough to compare.
  throw option_error(shortened(key), "there is no such option",
                     fmt::format("did you mean \"{}\"?", nearest_name(shortened(key), known)));
}

// Throws for what nlohmann's parser lets pass: duplicate keys, and nesting that no option has.
class StrictShape {
 public:
  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.insert(key).second)
        throw option_error(shortened(key), "the key stands in the document twice", "remove one");
    }
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth > 1)
      throw option_error("", "the document is nested deeper than any option is",
                         "give one object of keys and plain values");
    return true;
  }

 private:
  std::set<std::string> keys_;
};

json parse_document(std::string_view text) {
  if (text.size() > kMaxText)
    throw option_error("", "the document is too large", "give at most 1 MiB of JSON")
        .want(kMaxText, text.size());
  try {
    json document = json::parse(text, StrictShape{});
    if (!document.is_object())
      throw option_error("", "the document is not a JSON object",
                         R"(give an object like {"scratch": "/nvme/scratch"})");
    return document;
  } catch (const json::parse_error& error) {
    throw option_error("", "the document is not JSON",
                       "look at the byte that the offset names: it follows the last good one")
        .at(error.byte == 0 ? 0 : error.byte - 1);
  } catch (const json::exception&) {
    throw option_error("", "the document holds a number that no type can hold",
                       "give plain integers and decimal numbers");
  }
}

void refuse_conflicts(const Options& options) {
  if (options.scratch.empty())
    throw option_error("scratch", "the option is missing",
                       "name a directory on a local drive, or several");
  if (options.local_rank >= options.local_size)
    throw option_error("local_rank", "the rank is not below local_size",
                       "count the node's ranks from 0 to local_size - 1")
        .want(options.local_size - 1, options.local_rank);
  if (options.tile_elements != 0) {
    const std::uint64_t block = options.block_elements != 0
                                    ? options.block_elements
                                    : std::min(kDefaultBlock, options.tile_elements);
    if (options.tile_elements % block != 0)
      throw option_error(
          "tile_elements",
          fmt::format("{} is not a multiple of block_elements, {}", options.tile_elements, block),
          "a tile is whole blocks: change one of the two");
  }
}

}  // namespace

Options parse_options(std::string_view text, std::uint32_t minor) {
  const json document = parse_document(text);
  Options options;
  for (const auto& [key, value] : document.items()) {
    const auto keys = option_keys();
    const auto known = std::find_if(keys.begin(), keys.end(), [&key = key, minor](const auto& k) {
      return k.name == key && k.since_minor <= minor;
    });
    if (known == keys.end()) refuse_unknown(key, minor);
    known->read(known->name, value, options);
  }
  refuse_conflicts(options);
  return options;
}

}  // namespace millpond::plugin
