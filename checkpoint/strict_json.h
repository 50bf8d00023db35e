// JSON as the files of a checkpoint use it, read strictly and in bounded memory: one object whose
// members are scalars or arrays of rows, a row being an object of scalars and arrays of scalars.
// Only known keys, each once; whole numbers from 0 to 2^63 - 1; caps on everything. Every refusal
// is Error(E_CORRUPT) with the file's path and the byte.
#ifndef MILLPOND_CHECKPOINT_STRICT_JSON_H_
#define MILLPOND_CHECKPOINT_STRICT_JSON_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millpond/error.hpp"

namespace millpond::checkpoint {

inline constexpr std::uint64_t kMaxJsonBytes = 1ull << 30;
inline constexpr std::uint64_t kMaxRows = 10'000'000;  // of one array
inline constexpr std::uint32_t kMaxRowValues = 64;     // values inside one row
inline constexpr std::uint32_t kMaxTextBytes = 4096;

// A value of the object or row being read, in the order of the text; a container is followed by
// what it contains.
struct JsonValue {
  enum class Kind : std::uint8_t { kNumber, kText, kBoolean, kArray, kObject };
  Kind kind = Kind::kNumber;
  std::uint8_t key = 0;        // index into the known keys
  std::uint32_t end = 0;       // index behind the last value inside
  std::uint32_t position = 0;  // byte in the text where the value has been read
  std::uint64_t number = 0;    // kNumber, kBoolean; kText: where in the texts
  std::uint32_t length = 0;    // kText
};

struct JsonSource {
  std::string path;
  std::span<const std::string_view> keys;
  std::vector<JsonValue> values;
  std::string texts;

  Error corrupt(std::uint64_t position, const std::string& reason) const;
};

// Takes the members of one object out by name; done() refuses what nobody took.
class JsonObject {
 public:
  JsonObject(const JsonSource& source, std::uint32_t index) : source_(source), index_(index) {}

  std::uint64_t number(std::string_view key, std::uint64_t maximum = INT64_MAX);
  bool boolean(std::string_view key);
  std::string text(std::string_view key);
  std::string digest(std::string_view key);
  std::vector<std::uint64_t> numbers(std::string_view key, std::uint32_t maximum_count);
  void rows(std::string_view key);  // present, and an array (its rows went to the row function)
  void done() const;
  Error corrupt(const std::string& reason) const;

 private:
  const JsonValue& take(std::string_view key, JsonValue::Kind kind);

  const JsonSource& source_;
  std::uint32_t index_;
  std::uint64_t taken_ = 0;
};

// `row` gets each element of the object's arrays as soon as it is complete; `whole` the object
// itself at the end. At most 64 known keys.
void read_strict_json(std::string_view text, const std::string& path,
                      std::span<const std::string_view> keys,
                      const std::function<void(std::string_view key, JsonObject& row)>& row,
                      const std::function<void(JsonObject& whole)>& whole);

// Throws unless the text begins with {"format": "<format>", "version": 1, and names the version
// that it found instead (E_VERSION).
void check_format(std::string_view text, const std::string& path, std::string_view format);

// JSON text of a string, quotes included. Throws Error(E_ARGUMENT) when it is not UTF-8 or too
// long.
std::string quoted(std::string_view text);

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_STRICT_JSON_H_
