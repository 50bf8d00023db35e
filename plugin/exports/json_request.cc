#include "plugin/exports/json_request.h"

#include <algorithm>
#include <utility>

#include "millpond/error.hpp"
#include "plugin/exports/read_struct.h"
#include "plugin/options/nearest.h"

namespace millpond::plugin {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLongest = 1 << 20;

std::string listed(std::initializer_list<std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    text += (text.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  }
  return text;
}

}  // namespace

JsonRequest::JsonRequest(const millpond_str& text, const char* operation,
                         std::initializer_list<std::string_view> keys)
    : operation_(operation), document_(json::object()) {
  const std::string_view read = read_str(text, "request", kLongest);
  if (read.empty()) return;
  document_ = json::parse(read, nullptr, false);
  if (!document_.is_object()) {
    throw Error(MILLPOND_E_ARGUMENT, operation, "the request is not a JSON object")
        .field("request")
        .remedy("Give an object like {\"directory\": \"/nvme/scratch\"}");
  }
  for (const auto& [key, value] : document_.items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const std::vector<std::string_view> known(keys);
    throw Error(MILLPOND_E_ARGUMENT, operation, "there is no such key in this request")
        .field("request." + key.substr(0, 48))
        .remedy("Did you mean \"" + std::string(nearest_name(key.substr(0, 48), known)) + "\"?");
  }
}

void JsonRequest::refuse(std::string_view key, const std::string& expected) const {
  std::string shown =
      document_.at(std::string(key)).dump(-1, ' ', false, json::error_handler_t::replace);
  if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
  throw Error(MILLPOND_E_ARGUMENT, operation_, "the value " + shown + " is not " + expected)
      .field("request." + std::string(key))
      .remedy("Give " + expected);
}

std::string JsonRequest::text(std::string_view key, std::string otherwise) const {
  if (!has(key)) return otherwise;
  const json& value = document_.at(std::string(key));
  if (!value.is_string() || value.get_ref<const std::string&>().find('\0') != std::string::npos) {
    refuse(key, "a text");
  }
  return value.get<std::string>();
}

std::uint64_t JsonRequest::integer(std::string_view key, std::uint64_t otherwise, std::uint64_t low,
                                   std::uint64_t high) const {
  if (!has(key)) return otherwise;
  const json& value = document_.at(std::string(key));
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < low ||
      value.get<std::uint64_t>() > high) {
    refuse(key, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value.get<std::uint64_t>();
}

std::string JsonRequest::one_of(std::string_view key, std::string otherwise,
                                std::initializer_list<std::string_view> names) const {
  std::string value = text(key, std::move(otherwise));
  if (has(key) && std::find(names.begin(), names.end(), value) == names.end()) {
    refuse(key, "one of " + listed(names));
  }
  return value;
}

std::string JsonRequest::tristate(std::string_view key, std::string otherwise) const {
  if (!has(key)) return otherwise;
  const json& value = document_.at(std::string(key));
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value != "auto") refuse(key, "\"auto\", true or false");
  return "auto";
}

std::vector<double> JsonRequest::shares(std::string_view key, std::vector<double> otherwise) const {
  if (!has(key)) return otherwise;
  const json& value = document_.at(std::string(key));
  std::vector<double> shares;
  bool good = value.is_array() && !value.empty() && value.size() <= 16;
  for (std::size_t i = 0; good && i < value.size(); ++i) {
    good = value[i].is_number() && value[i].get<double>() >= 0 && value[i].get<double>() <= 1;
    if (good) shares.push_back(value[i].get<double>());
  }
  if (!good) refuse(key, "a list of 1 to 16 numbers from 0 to 1");
  return shares;
}

std::vector<std::string> JsonRequest::some_of(std::string_view key,
                                              std::vector<std::string> otherwise,
                                              std::initializer_list<std::string_view> names) const {
  if (!has(key)) return otherwise;
  const json& value = document_.at(std::string(key));
  std::vector<std::string> chosen;
  bool good = value.is_array() && !value.empty() && value.size() <= names.size();
  for (std::size_t i = 0; good && i < value.size(); ++i) {
    good = value[i].is_string() &&
           std::find(names.begin(), names.end(), value[i].get<std::string>()) != names.end();
    if (good) chosen.push_back(value[i].get<std::string>());
  }
  if (!good) refuse(key, "a list of some of " + listed(names));
  return chosen;
}

}  // namespace millpond::plugin
