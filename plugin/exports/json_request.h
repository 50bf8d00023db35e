// The request documents of files/1 and probe/1: one JSON object with plain values. Strict: an
// unknown key is refused with the nearest known one, as in the options of a runtime.
#ifndef MILLPOND_PLUGIN_EXPORTS_JSON_REQUEST_H_
#define MILLPOND_PLUGIN_EXPORTS_JSON_REQUEST_H_

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "millpond/base.h"

namespace millpond::plugin {

class JsonRequest {
 public:
  // Throws Error(E_ARGUMENT), field "request" or "request.<key>". An empty text is an empty object.
  JsonRequest(const millpond_str& text, const char* operation,
              std::initializer_list<std::string_view> keys);

  bool has(std::string_view key) const { return document_.contains(key); }
  // Each gives `otherwise` where the key is absent.
  std::string text(std::string_view key, std::string otherwise) const;
  std::uint64_t integer(std::string_view key, std::uint64_t otherwise, std::uint64_t low,
                        std::uint64_t high) const;
  std::string one_of(std::string_view key, std::string otherwise,
                     std::initializer_list<std::string_view> names) const;
  // true and false as the option "direct" has them: "auto", "true", "false".
  std::string tristate(std::string_view key, std::string otherwise) const;
  // Numbers from 0 to 1.
  std::vector<double> shares(std::string_view key, std::vector<double> otherwise) const;
  std::vector<std::string> some_of(std::string_view key, std::vector<std::string> otherwise,
                                   std::initializer_list<std::string_view> names) const;

 private:
  [[noreturn]] void refuse(std::string_view key, const std::string& expected) const;

  const char* operation_;
  nlohmann::json document_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_EXPORTS_JSON_REQUEST_H_
