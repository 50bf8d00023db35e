// millpond-sample: see --help.
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "host_adapters/sample/arguments.h"
#include "host_adapters/sample/durable_file.h"
#include "host_adapters/sample/formats.h"
#include "host_adapters/sample/progress.h"
#include "host_adapters/sample/report.h"
#include "host_adapters/sample/trainer.h"

int main(int count, char** values) {
  using namespace millpond::sample;
  try {
    int exit_code = kExitOk;
    const std::optional<Arguments> arguments = parse_arguments(count, values, &exit_code);
    if (!arguments) return exit_code;
    Progress progress(arguments->quiet);
    try {
      if (arguments->mode == Mode::kFormats) {
        const FormatTable formats = try_formats(*arguments, progress);
        std::fputs(formats.text.c_str(), stdout);
        if (!arguments->json.empty()) write_durably(arguments->json, formats.json);
        return formats.within_limits ? kExitOk : kExitDifferent;
      }
      const RunResult result = train(*arguments, progress);
      std::fputs(table(*arguments, result).c_str(), stdout);
      if (!arguments->json.empty()) {
        write_durably(arguments->json, json_report(*arguments, result));
      }
    } catch (const Different& difference) {
      progress.line(std::string("millpond-sample: DIFFERENT: ") + difference.what(), true);
      return kExitDifferent;
    } catch (const std::exception& error) {
      progress.line(std::string("millpond-sample: ") + error.what(), true);
      return kExitFailed;
    }
    return kExitOk;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "millpond-sample: %s\n", error.what());
    return kExitFailed;
  }
}
