#include "plugin/options/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

namespace millpond::plugin {
namespace {

using nlohmann::json;

constexpr std::uint64_t kPage = kernels::kPageBytes;
constexpr std::uint64_t kMaxBytes = 1ull << 50;
constexpr std::size_t kMaxDirectories = 64;
constexpr std::size_t kMaxPathBytes = 4095;  // PATH_MAX with its zero

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

[[noreturn]] void refuse(std::string_view key, const json& value, const std::string& expected) {
  throw option_error(key, fmt::format("the value {} is not {}", shown(value), expected),
                     fmt::format("give {}", expected));
}

std::uint64_t integer(std::string_view key, const json& value, std::uint64_t low,
                      std::uint64_t high, std::uint64_t multiple = 1) {
  const bool good = value.is_number_unsigned() && value.get<std::uint64_t>() >= low &&
                    value.get<std::uint64_t>() <= high &&
                    value.get<std::uint64_t>() % multiple == 0;
  if (good) return value.get<std::uint64_t>();
  std::string expected = fmt::format("an integer from {} to {}", low, high);
  if (multiple != 1) expected += fmt::format(" that is a multiple of {}", multiple);
  refuse(key, value, expected);
}

std::uint32_t small_integer(std::string_view key, const json& value, std::uint32_t low,
                            std::uint32_t high) {
  return static_cast<std::uint32_t>(integer(key, value, low, high));
}

bool boolean(std::string_view key, const json& value) {
  if (!value.is_boolean()) refuse(key, value, "true or false");
  return value.get<bool>();
}

// Index of the value in `names`.
std::size_t choice(std::string_view key, const json& value,
                   std::initializer_list<std::string_view> names) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const auto* found = std::find(names.begin(), names.end(), text);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  }
  std::string expected = "one of";
  for (const std::string_view name : names)
    expected += fmt::format("{} \"{}\"", name == *names.begin() ? "" : ",", name);
  refuse(key, value, expected);
}

void read_scratch(std::string_view key, const json& value, Options& options) {
  static constexpr const char* kExpected = "a directory, or a list of 1 to 64 different ones";
  const json list = value.is_array() ? value : json::array({value});
  if (list.empty() || list.size() > kMaxDirectories) refuse(key, value, kExpected);
  for (const json& entry : list) {
    if (!entry.is_string()) refuse(key, value, kExpected);
    const auto& path = entry.get_ref<const std::string&>();
    if (path.empty() || path.size() > kMaxPathBytes || path.find('\0') != std::string::npos)
      refuse(key, entry, "a path of 1 to 4095 bytes without a zero byte");
    if (std::find(options.scratch.begin(), options.scratch.end(), path) != options.scratch.end())
      refuse(key, value, kExpected);
    options.scratch.push_back(path);
  }
}

void read_host_memory(std::string_view key, const json& value, Options& options) {
  if (value == "auto") {
    options.host_memory_bytes = 0;
  } else if (value.is_string() || value == 0) {
    refuse(key, value, "\"auto\" or a number of bytes, at least 4096");
  } else {
    options.host_memory_bytes = integer(key, value, kPage, kMaxBytes);
  }
}

void read_moments(std::string_view key, const json& value, Options& options) {
  using kernels::Storage;
  static constexpr std::array kFormats{Storage::kFp32, Storage::kBf16, Storage::kFp16Scaled,
                                       Storage::kFp8E4m3Scaled, Storage::kFp8E5m2Scaled};
  options.moments = kFormats[choice(key, value, {"fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"})];
}

void read_direct(std::string_view key, const json& value, Options& options) {
  if (value.is_boolean()) {
    options.direct = value.get<bool>() ? "true" : "false";
  } else if (value == "auto") {
    options.direct = "auto";
  } else {
    refuse(key, value, "\"auto\", true or false");
  }
}

void read_timeout(std::string_view key, const json& value, Options& options) {
  if (!value.is_number() || value.get<double>() < 0.001 || value.get<double>() > 86400)
    refuse(key, value, "a number of seconds from 0.001 to 86400");
  options.io_timeout_s = value.get<double>();
}

constexpr std::array kKeys{
    OptionKey{"scratch", 0, read_scratch},
    OptionKey{"host_memory_bytes", 0, read_host_memory},
    OptionKey{"local_rank", 0,
              [](std::string_view key, const json& value, Options& options) {
                options.local_rank = small_integer(key, value, 0, 65535);
              }},
    OptionKey{"local_size", 0,
              [](std::string_view key, const json& value, Options& options) {
                options.local_size = small_integer(key, value, 1, 65536);
              }},
    OptionKey{"device_staging_bytes", 0,
              [](std::string_view key, const json& value, Options& options) {
                options.device_staging_bytes = integer(key, value, 0, kMaxBytes);
              }},
    OptionKey{"tile_elements", 0,
              [](std::string_view key, const json& value, Options& options) {
                options.tile_elements = integer(key, value, 0, 1ull << 32, kPage);
              }},
    OptionKey{"bucket_elements", 0,
              [](std::string_view key, const json& value, Options& options) {
                options.bucket_elements = integer(key, value, 1, 1ull << 48);
              }},
    OptionKey{"block_elements", 0,
              [](std::string_view key, const json& value, Options& options) {
                options.block_elements = integer(key, value, 0, 1ull << 26, kPage);
              }},
    OptionKey{"moments", 0, read_moments},
    OptionKey{"io_engine", 0,
              [](std::string_view key, const json& value, Options& options) {
                choice(key, value, {"auto", "io_uring", "threads"});
                options.io_engine = value.get<std::string>();
              }},
    OptionKey{"direct", 0, read_direct},
    OptionKey{"queue_depth", 0,
              [](std::string_view key, const json& value, Options& options) {
                options.queue_depth = small_integer(key, value, 0, 4096);
              }},
    OptionKey{"io_timeout_s", 0, read_timeout},
    OptionKey{"verify_reads", 0,
              [](std::string_view key, const json& value, Options& options) {
                options.verify_reads = boolean(key, value);
              }},
    OptionKey{"update_threads", 0,
              [](std::string_view key, const json& value, Options& options) {
                options.update_threads = small_integer(key, value, 0, 1024);
              }},
    OptionKey{"save_bytes_per_s", 0,
              [](std::string_view key, const json& value, Options& options) {
                options.save_bytes_per_s = integer(key, value, 0, kMaxBytes);
              }},
    OptionKey{"log_level", 0,
              [](std::string_view key, const json& value, Options& options) {
                options.log_level = static_cast<std::uint32_t>(
                    choice(key, value, {"error", "warning", "info", "debug"}));
              }},
};

}  // namespace

std::span<const OptionKey> option_keys() { return kKeys; }

Error option_error(std::string_view key, std::string reason, std::string remedy) {
  std::string field = key.empty() ? "options" : fmt::format("options.{}", key);
  return Error(MILLPOND_E_OPTION, "read options", std::move(reason))
      .field(std::move(field))
      .remedy(std::move(remedy));
}

}  // namespace millpond::plugin
