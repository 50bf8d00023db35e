#include "host_adapters/command_line/plugin_options.h"

#include <cstddef>

namespace millpond::cli {

CLI::Option* add_plugin_options(CLI::App* app, std::vector<std::string>& options) {
  return app->add_option("--option", options,
                         "KEY=JSON for the plugin's options, any number of times");
}

std::string wrong_plugin_option(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    const std::size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0 ||
        !nlohmann::json::accept(option.substr(equals + 1))) {
      return "--option " + option + ": not KEY=JSON (a text needs its quotes: KEY='\"text\"')";
    }
  }
  return {};
}

void set_plugin_options(nlohmann::json& document, const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    const std::size_t equals = option.find('=');
    document[option.substr(0, equals)] = nlohmann::json::parse(option.substr(equals + 1));
  }
}

}  // namespace millpond::cli
