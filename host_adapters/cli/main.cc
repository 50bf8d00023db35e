// millpond: see --help.
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "host_adapters/cli/arguments.h"
#include "host_adapters/cli/bench.h"
#include "host_adapters/cli/bench_ranks.h"
#include "host_adapters/cli/bench_report.h"
#include "host_adapters/cli/doctor.h"
#include "host_adapters/cli/files.h"
#include "host_adapters/cli/progress.h"
#include "host_adapters/command_line/flag_names.h"
#include "host_adapters/command_line/output_file.h"

namespace millpond::cli {
namespace {

void print(const std::string& table, const std::string& json, OutputFile& file) {
  std::FILE* const stream = file.is_standard_output() ? stderr : stdout;
  std::fputs(table.c_str(), stream);
  std::fflush(stream);
  file.write(json);
}

int run(const Arguments& arguments, Progress& progress) {
  // Only the command that was given has one.
  const auto& path = !arguments.doctor.json.empty()  ? arguments.doctor.json
                     : !arguments.files.json.empty() ? arguments.files.json
                                                     : arguments.bench.json;
  OutputFile file(path, "--json");
  if (arguments.command == Arguments::Command::kDoctor) {
    const Diagnosis diagnosis = run_doctor(arguments.doctor, progress);
    print(diagnosis.table, diagnosis.json, file);
    return diagnosis.will_work ? kExitOk : kExitUnsuitable;
  }
  if (arguments.command == Arguments::Command::kFiles) {
    const FilesAnswer answer = run_files(arguments.files, progress);
    print(answer.table, answer.json, file);
    return answer.equal ? kExitOk : kExitDiffers;
  }
  if (arguments.bench.ranks > 1) return run_bench_ranks(arguments.bench, file);
  const BenchResult result = run_bench(arguments.bench, progress);
  print(bench_table(arguments.bench, result), bench_json(arguments.bench, result), file);
  return kExitOk;
}

}  // namespace
}  // namespace millpond::cli

int main(int count, char** values) {
  using namespace millpond::cli;
  try {
    int exit_code = kExitOk;
    const std::optional<Arguments> arguments = parse_arguments(count, values, &exit_code);
    if (!arguments) return exit_code;
    // Only the command that was given can have set it.
    Progress progress(arguments->doctor.quiet || arguments->bench.quiet || arguments->files.quiet);
    try {
      return run(*arguments, progress);
    } catch (const std::exception& error) {
      progress.error("millpond: " + with_flag_names(error.what()));
      return exit_code_of(error);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "millpond: %s\n", error.what());
    return kExitFailed;
  }
}
