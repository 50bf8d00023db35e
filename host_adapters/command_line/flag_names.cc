#include "host_adapters/command_line/flag_names.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "millpond/error.hpp"

namespace millpond::cli {
namespace {

constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
    {"host_memory_bytes", "--tier"}, {"tile_elements", "--tile"},
    {"bucket_elements", "--bucket"}, {"io_engine", "--engine"},
    {"update_threads", "--threads"},
};

constexpr std::uint64_t kLeastTile = 4096;  // elements, of one block

}  // namespace

std::string with_flag_names(std::string_view message) {
  std::string names;
  for (const auto& [option, flag] : kFlags) {
    if (message.find(option) == std::string_view::npos) continue;
    names.append(names.empty() ? " (" : ", ").append(option).append(" is ").append(flag);
  }
  return std::string(message) + (names.empty() ? "" : names + " here)");
}

int exit_code_of(const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  return known != nullptr && known->code() == MILLPOND_E_OPTION ? 2 : 1;
}

std::string smaller_memory(std::uint64_t state_bytes, std::uint64_t element_bytes) {
  const std::uint64_t tile_least = kLeastTile * element_bytes;
  const std::uint64_t tier = std::bit_floor(std::max(state_bytes / 2, 4 * tile_least));
  const std::uint64_t tile = std::max(
      std::bit_floor(std::min(tier / 5 / element_bytes, std::uint64_t{1} << 20)), kLeastTile);
  const bool large = tier >= (1ULL << 20);
  return "--tier " + std::to_string(large ? tier >> 20 : tier >> 10) + (large ? "MiB" : "KiB") +
         " --tile " + std::to_string(tile);
}

}  // namespace millpond::cli
