// Numbers with units, both ways: "600M" parameters, "1.5GiB" of bytes.
#ifndef MILLPOND_HOST_ADAPTERS_COMMAND_LINE_QUANTITY_H_
#define MILLPOND_HOST_ADAPTERS_COMMAND_LINE_QUANTITY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millpond::cli {

// "1000000", "1e9", "600M", "1.5B"; K, M, G or B, T are powers of 1000. Whole and positive, or
// nothing.
std::optional<std::uint64_t> parse_count(std::string_view text);
// "4096", "8GiB", "1.5GB"; Ki, Mi, Gi, Ti are powers of 1024, K, M, G, T of 1000, with or without a
// B behind.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

std::string show_bytes(double bytes);         // "12.00 GB"
std::string show_rate(double bytes_per_s);    // "1.31 GB/s"
std::string show_seconds(double seconds);     // "9.63 s", "85.1 ms"
std::string show_count(std::uint64_t count);  // "1000 M"
std::string show_number(const char* format, double value);

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_COMMAND_LINE_QUANTITY_H_
