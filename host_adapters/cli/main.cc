// millpond: see --help.
#include <cstdio>
#include <exception>
#include <fstream>
#include <optional>
#include <string>

#include "host_adapters/cli/arguments.h"
#include "host_adapters/cli/bench.h"
#include "host_adapters/cli/bench_report.h"
#include "host_adapters/cli/doctor.h"
#include "host_adapters/cli/progress.h"
#include "millpond/error.hpp"

namespace millpond::cli {
namespace {

void print(const std::string& table, const std::string& json,
           const std::filesystem::path& json_path) {
  std::fputs(table.c_str(), stdout);
  std::fflush(stdout);
  if (json_path.empty()) return;
  std::ofstream file(json_path, std::ios::trunc);
  file << json;
  file.close();
  if (file) return;
  throw Error(MILLPOND_E_IO, "write", "the file could not be written")
      .path(json_path.string())
      .field("--json")
      .remedy("Name a file in a directory that exists and has space");
}

int run(const Arguments& arguments, Progress& progress) {
  if (arguments.command == Arguments::Command::kDoctor) {
    const Diagnosis diagnosis = run_doctor(arguments.doctor, progress);
    print(diagnosis.table, diagnosis.json, arguments.doctor.json);
    return diagnosis.will_work ? kExitOk : kExitUnsuitable;
  }
  const BenchResult result = run_bench(arguments.bench, progress);
  print(bench_table(arguments.bench, result), bench_json(arguments.bench, result),
        arguments.bench.json);
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
    const bool doctor = arguments->command == Arguments::Command::kDoctor;
    Progress progress(doctor ? arguments->doctor.quiet : arguments->bench.quiet);
    try {
      return run(*arguments, progress);
    } catch (const std::exception& error) {
      progress.error(std::string("millpond: ") + error.what());
      return kExitFailed;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "millpond: %s\n", error.what());
    return kExitFailed;
  }
}
