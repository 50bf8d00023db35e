// millpond-sample: see --help.
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "host_adapters/command_line/flag_names.h"
#include "host_adapters/command_line/output_file.h"
#include "host_adapters/processes/meeting.h"
#include "host_adapters/processes/ranks.h"
#include "host_adapters/sample/arguments.h"
#include "host_adapters/sample/comparison.h"
#include "host_adapters/sample/formats.h"
#include "host_adapters/sample/place.h"
#include "host_adapters/sample/progress.h"
#include "host_adapters/sample/report.h"
#include "host_adapters/sample/saves.h"
#include "host_adapters/sample/trainer.h"

namespace millpond::sample {
namespace {

int run_rank(const Arguments& arguments, cli::OutputFile& json, processes::Meeting& meeting,
             std::uint32_t rank) {
  std::FILE* const out = json.is_standard_output() ? stderr : stdout;
  Progress progress(arguments.quiet, rank, arguments.ranks);
  try {
    const Place place(arguments, meeting, rank);
    if (arguments.mode == Mode::kFormats) {
      const FormatTable formats = try_formats(arguments, place, progress);
      std::fputs(formats.text.c_str(), out);
      json.write(formats.json);
      return formats.within_limits ? kExitOk : kExitDifferent;
    }
    const RunResult result = train(arguments, place, progress);
    if (rank != 0) return kExitOk;
    std::fputs(table(arguments, result).c_str(), out);
    json.write(json_report(arguments, result));
  } catch (const Different& difference) {
    progress.line(std::string("millpond-sample: DIFFERENT: ") + difference.what(), true);
    return kExitDifferent;
  } catch (const std::exception& error) {
    progress.line("millpond-sample: " + cli::with_flag_names(error.what()), true);
    return cli::exit_code_of(error);
  }
  return kExitOk;
}

}  // namespace
}  // namespace millpond::sample

int main(int count, char** values) {
  using namespace millpond::sample;
  try {
    int exit_code = kExitOk;
    const std::optional<Arguments> arguments = parse_arguments(count, values, &exit_code);
    if (!arguments) return exit_code;
    if (!arguments->save.empty()) prepare_saves(arguments->save, arguments->resume);
    millpond::cli::OutputFile json(arguments->json, "--json");
    millpond::processes::Meeting meeting(arguments->ranks, kSlotBytes, arguments->rank_timeout_s);
    return millpond::processes::run_ranks(
        meeting, [&](std::uint32_t rank) { return run_rank(*arguments, json, meeting, rank); },
        [](std::string_view line) {
          std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
        });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "millpond-sample: %s\n", error.what());
    return kExitFailed;
  }
}
