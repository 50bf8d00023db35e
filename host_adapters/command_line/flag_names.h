// The plugin speaks of its options, a person gave flags: which flag is which option.
#ifndef MILLPOND_HOST_ADAPTERS_COMMAND_LINE_FLAG_NAMES_H_
#define MILLPOND_HOST_ADAPTERS_COMMAND_LINE_FLAG_NAMES_H_

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace millpond::cli {

// The message, and behind it "(host_memory_bytes is --tier here)" for each option in it that has a
// flag in both programs.
std::string with_flag_names(std::string_view message);

// 2 where the plugin refused an option (E_OPTION), which came from the command line; else 1.
int exit_code_of(const std::exception& error);

// "--tier 2MiB --tile 32768": a tier, about half of the state, and tiles that leave it a ring; for
// whom everything fitted.
std::string smaller_memory(std::uint64_t state_bytes, std::uint64_t element_bytes);

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_COMMAND_LINE_FLAG_NAMES_H_
