// --option KEY=JSON: options that a program hands to the plugin as they are.
#ifndef MILLPOND_HOST_ADAPTERS_COMMAND_LINE_PLUGIN_OPTIONS_H_
#define MILLPOND_HOST_ADAPTERS_COMMAND_LINE_PLUGIN_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace millpond::cli {

CLI::Option* add_plugin_options(CLI::App* app, std::vector<std::string>& options);

// What is wrong with the first that is not KEY=JSON, for the command line's error; else empty.
std::string wrong_plugin_option(const std::vector<std::string>& options);

// Each as a key of the document; of two with one key the last counts. They must be right.
void set_plugin_options(nlohmann::json& document, const std::vector<std::string>& options);

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_COMMAND_LINE_PLUGIN_OPTIONS_H_
