#include "host_adapters/command_line/quantity_option.h"

namespace millpond::cli {

CLI::Option* add_quantity(CLI::App* app, const std::string& name, std::uint64_t& value,
                          ParseQuantity parse, const std::string& help, const std::string& shown) {
  return app
      ->add_option_function<std::string>(
          name,
          [&value, parse, name](const std::string& text) {
            const auto parsed = parse(text);
            if (!parsed) {
              throw CLI::ValidationError(
                  name, "\"" + text + "\" is no amount; give one like " +
                            (parse == parse_bytes ? "8GiB or 500MB" : "600M, 1B or 1e9"));
            }
            value = *parsed;
          },
          help)
      ->type_name(parse == parse_bytes ? "BYTES" : "COUNT")
      ->default_str(shown);
}

}  // namespace millpond::cli
