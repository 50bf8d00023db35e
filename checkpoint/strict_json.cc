#include "checkpoint/strict_json.h"

#include <iterator>
#include <nlohmann/json.hpp>

#include "checkpoint/digest.h"

namespace millpond::checkpoint {
namespace {

using Kind = JsonValue::Kind;
using Row = std::function<void(std::string_view, JsonObject&)>;

// Walks the text and remembers how far it came, which nlohmann's SAX interface does not tell.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char** seen) : at_(at), seen_(seen) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *seen_ = ++at_;
    return *this;
  }
  Cursor operator++(int) {
    Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** seen_;
};

class Handler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(JsonSource* source, const char* begin, const char** seen, const Row& row)
      : source_(*source), begin_(begin), seen_(seen), row_(row) {}

  bool null() override { throw refused("null is not a value of this format"); }
  bool boolean(bool value) override { return add(Kind::kBoolean).number = value, true; }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > INT64_MAX) throw refused("a number above 2^63 - 1");
    return add(Kind::kNumber).number = value, true;
  }
  bool number_integer(number_integer_t) override { throw refused("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    throw refused("a number that is not a whole one from 0 to 2^63 - 1");
  }
  bool binary(binary_t&) override { throw refused("binary data"); }
  bool string(string_t& value) override {
    if (value.size() > kMaxTextBytes) throw refused("a string of more than 4096 bytes");
    JsonValue& added = add(Kind::kText);
    added.number = source_.texts.size();
    added.length = static_cast<std::uint32_t>(value.size());
    source_.texts += value;
    return true;
  }
  bool key(string_t& name) override {
    Level& level = levels_.back();
    for (std::size_t k = 0; k < source_.keys.size(); ++k) {
      if (source_.keys[k] != name) continue;
      if (level.keys >> k & 1) throw refused("the key \"" + name + "\" is there twice");
      level.keys |= std::uint64_t{1} << k;
      key_ = static_cast<std::uint8_t>(k);
      return true;
    }
    throw refused("unknown key \"" + name.substr(0, 64) + "\"");
  }
  bool start_object(std::size_t) override { return open(Kind::kObject, 0, 2); }
  bool start_array(std::size_t) override { return open(Kind::kArray, 1, 3); }
  bool end_object() override {
    const Level level = close();
    if (levels_.size() != 2) return true;
    if (++levels_.back().rows > kMaxRows) throw refused("more than 10,000,000 rows");
    JsonObject object(source_, level.value);
    row_(source_.keys[source_.values[levels_.back().value].key], object);
    source_.texts.resize(level.texts);  // rows do not pile up
    source_.values.resize(level.value);
    return true;
  }
  bool end_array() override { return close(), true; }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& problem) override {
    std::string reason = problem.what();
    if (const auto end = reason.find("] "); end != std::string::npos) reason.erase(0, end + 2);
    throw source_.corrupt(position, "not JSON of this format: " + reason.substr(0, 200));
  }

 private:
  struct Level {
    std::uint32_t value = 0;
    std::uint64_t texts = 0;
    std::uint64_t keys = 0;  // bit by known key
    std::uint64_t rows = 0;
  };

  Error refused(const std::string& reason) const {
    return source_.corrupt(static_cast<std::uint64_t>(*seen_ - begin_), reason);
  }
  JsonValue& add(Kind kind) {
    // object, its array, a row's object, the row's array: scalars stand in objects or a row's array
    if (levels_.empty()) throw refused("the text is not an object");
    if (levels_.size() == 2) throw refused("a row that is not an object");
    return append(kind);
  }
  JsonValue& append(Kind kind) {
    const std::uint32_t first = levels_.size() < 3 ? 0 : levels_[2].value;
    if (source_.values.size() - first > kMaxRowValues) throw refused("too many values in a row");
    source_.values.push_back({kind, key_, static_cast<std::uint32_t>(source_.values.size() + 1),
                              static_cast<std::uint32_t>(*seen_ - begin_), 0, 0});
    return source_.values.back();
  }
  bool open(Kind kind, std::size_t depth_a, std::size_t depth_b) {
    if (levels_.size() != depth_a && levels_.size() != depth_b) throw refused("nested too deep");
    levels_.push_back(
        {static_cast<std::uint32_t>(source_.values.size()), source_.texts.size(), 0, 0});
    append(kind);
    return true;
  }
  Level close() {
    const Level level = levels_.back();
    levels_.pop_back();
    source_.values[level.value].end = static_cast<std::uint32_t>(source_.values.size());
    return level;
  }

  JsonSource& source_;
  const char* begin_;
  const char** seen_;
  const Row& row_;
  std::vector<Level> levels_;
  std::uint8_t key_ = 0;
};

}  // namespace

Error JsonSource::corrupt(std::uint64_t position, const std::string& reason) const {
  return Error(MILLPOND_E_CORRUPT, "read", reason).path(path).at(position);
}

Error JsonObject::corrupt(const std::string& reason) const {
  return source_.corrupt(source_.values[index_].position, reason);
}

const JsonValue& JsonObject::take(std::string_view key, Kind kind) {
  const std::uint32_t end = source_.values[index_].end;
  for (std::uint32_t i = index_ + 1; i < end; i = source_.values[i].end) {
    const JsonValue& value = source_.values[i];
    if (source_.keys[value.key] != key) continue;
    if (value.kind != kind) {
      throw source_.corrupt(value.position,
                            "the value of \"" + std::string(key) + "\" has the wrong type");
    }
    taken_ |= std::uint64_t{1} << value.key;
    return value;
  }
  throw corrupt("the key \"" + std::string(key) + "\" is missing");
}

std::uint64_t JsonObject::number(std::string_view key, std::uint64_t maximum) {
  const JsonValue& value = take(key, Kind::kNumber);
  if (value.number > maximum) {
    throw source_.corrupt(value.position, "the value of \"" + std::string(key) + "\" is too large")
        .want(maximum, value.number);
  }
  return value.number;
}

bool JsonObject::boolean(std::string_view key) { return take(key, Kind::kBoolean).number != 0; }

std::string JsonObject::text(std::string_view key) {
  const JsonValue& value = take(key, Kind::kText);
  return source_.texts.substr(value.number, value.length);
}

std::string JsonObject::digest(std::string_view key) {
  const JsonValue& value = take(key, Kind::kText);
  std::string found = source_.texts.substr(value.number, value.length);
  if (!is_hex32(found)) {
    throw source_.corrupt(value.position, "the value of \"" + std::string(key) +
                                              "\" is not 32 lower-case hexadecimal digits");
  }
  return found;
}

std::vector<std::uint64_t> JsonObject::numbers(std::string_view key, std::uint32_t maximum_count) {
  const JsonValue& array = take(key, Kind::kArray);
  const auto first = static_cast<std::uint32_t>(&array - source_.values.data()) + 1;
  std::vector<std::uint64_t> found;
  for (std::uint32_t i = first; i < array.end; ++i) {
    if (source_.values[i].kind != Kind::kNumber) {
      throw source_.corrupt(source_.values[i].position,
                            "\"" + std::string(key) + "\" has an element that is no number");
    }
    found.push_back(source_.values[i].number);
  }
  if (found.size() > maximum_count) {
    throw source_.corrupt(array.position, "\"" + std::string(key) + "\" has too many elements")
        .want(maximum_count, found.size());
  }
  return found;
}

void JsonObject::rows(std::string_view key) { take(key, Kind::kArray); }

void JsonObject::done() const {
  const std::uint32_t end = source_.values[index_].end;
  for (std::uint32_t i = index_ + 1; i < end; i = source_.values[i].end) {
    if (!(taken_ >> source_.values[i].key & 1)) {
      throw source_.corrupt(source_.values[i].position,
                            "the key \"" + std::string(source_.keys[source_.values[i].key]) +
                                "\" does not belong here");
    }
  }
}

void read_strict_json(std::string_view text, const std::string& path,
                      std::span<const std::string_view> keys, const Row& row,
                      const std::function<void(JsonObject&)>& whole) {
  JsonSource source{path, keys, {}, {}};
  if (text.size() > kMaxJsonBytes) {
    throw source.corrupt(0, "the file is larger than any of this format")
        .want(kMaxJsonBytes, text.size());
  }
  const char* seen = text.data();
  Handler handler(&source, text.data(), &seen, row);
  nlohmann::json::sax_parse(Cursor(text.data(), &seen), Cursor(text.data() + text.size(), &seen),
                            &handler);
  JsonObject object(source, 0);
  whole(object);
}

void check_format(std::string_view text, const std::string& path, std::string_view format) {
  const std::string start = "{\"format\": \"" + std::string(format) + "\", \"version\": ";
  if (text.substr(0, start.size()) != start) {
    throw Error(MILLPOND_E_CORRUPT, "read",
                "the file does not begin as one of " + std::string(format) + " does")
        .path(path)
        .at(0);
  }
  text.remove_prefix(start.size());
  if (text.substr(0, 2) == "1,") return;
  throw Error(MILLPOND_E_VERSION, "read",
              "the file has version " +
                  std::string(text.substr(0, text.find_first_of(",}\n", 0))).substr(0, 20) +
                  " of " + std::string(format) + ", this plugin reads version 1")
      .path(path)
      .at(start.size())
      .remedy("Use the plugin that wrote it, or a newer one");
}

std::string quoted(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    throw Error(MILLPOND_E_ARGUMENT, "write", "a name of more than 4096 bytes")
        .want(kMaxTextBytes, text.size());
  }
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(MILLPOND_E_ARGUMENT, "write", "a name that is not UTF-8");
  }
}

}  // namespace millpond::checkpoint
