#include "host_adapters/command_line/quantity.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace millpond::cli {
namespace {

// The number that `text` begins with, and what follows it.
std::optional<double> leading_number(std::string_view& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0)) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<std::uint64_t> whole(double value) {
  if (!(value >= 1) || value >= 9e18 || value != std::floor(value)) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

int power_of(char letter) {
  switch (letter) {
    case 'k':
    case 'K':
      return 1;
    case 'm':
    case 'M':
      return 2;
    case 'g':
    case 'G':
      return 3;
    case 't':
    case 'T':
      return 4;
    default:
      return 0;
  }
}

}  // namespace

std::optional<std::uint64_t> parse_count(std::string_view text) {
  const auto value = leading_number(text);
  if (!value) return std::nullopt;
  if (text.empty()) return whole(*value);
  if (text.size() != 1) return std::nullopt;
  const int power = text[0] == 'b' || text[0] == 'B' ? 3 : power_of(text[0]);
  if (power == 0) return std::nullopt;
  return whole(std::round(*value * std::pow(1000.0, power)));
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  const auto value = leading_number(text);
  if (!value) return std::nullopt;
  if (text.empty()) return whole(*value);
  if (text.back() == 'B' || text.back() == 'b') text.remove_suffix(1);
  if (text.empty()) return whole(*value);
  const int power = power_of(text[0]);
  if (power == 0) return std::nullopt;
  if (text.size() == 1) return whole(std::round(*value * std::pow(1000.0, power)));
  if (text.size() != 2 || text[1] != 'i') return std::nullopt;
  return whole(std::round(*value * std::pow(1024.0, power)));
}

std::string show_number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string show_bytes(double bytes) {
  if (bytes >= 1e9) return show_number("%.2f GB", bytes / 1e9);
  if (bytes >= 1e6) return show_number("%.1f MB", bytes / 1e6);
  if (bytes >= 1e3) return show_number("%.1f kB", bytes / 1e3);
  return show_number("%.0f B", bytes);
}

std::string show_rate(double bytes_per_s) { return show_number("%.2f GB/s", bytes_per_s / 1e9); }

std::string show_seconds(double seconds) {
  if (seconds >= 1) return show_number("%.2f s", seconds);
  if (seconds >= 1e-3) return show_number("%.1f ms", seconds * 1e3);
  return show_number("%.0f us", seconds * 1e6);
}

std::string show_count(std::uint64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000) return show_number("%.4g M", value / 1e6);
  if (count >= 1'000) return show_number("%.4g K", value / 1e3);
  return std::to_string(count);
}

}  // namespace millpond::cli
