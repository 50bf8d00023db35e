// Options of a command line whose text is an amount with a unit.
#ifndef MILLPOND_HOST_ADAPTERS_COMMAND_LINE_QUANTITY_OPTION_H_
#define MILLPOND_HOST_ADAPTERS_COMMAND_LINE_QUANTITY_OPTION_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "host_adapters/command_line/quantity.h"

namespace millpond::cli {

// parse_bytes or parse_count.
using ParseQuantity = std::optional<std::uint64_t> (*)(std::string_view);

// `shown` is the default as --help has it.
CLI::Option* add_quantity(CLI::App* app, const std::string& name, std::uint64_t& value,
                          ParseQuantity parse, const std::string& help, const std::string& shown);

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_COMMAND_LINE_QUANTITY_OPTION_H_
