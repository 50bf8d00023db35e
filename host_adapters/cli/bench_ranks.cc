#include "host_adapters/cli/bench_ranks.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "host_adapters/cli/bench.h"
#include "host_adapters/cli/bench_report.h"
#include "host_adapters/cli/progress.h"
#include "host_adapters/cli/ranks_report.h"
#include "host_adapters/command_line/flag_names.h"
#include "host_adapters/processes/meeting.h"
#include "host_adapters/processes/ranks.h"
#include "millpond/error.hpp"

namespace millpond::cli {
namespace {

// A rank's figures as JSON, of up to 1,000 steps.
constexpr std::size_t kSlotBytes = 1 << 20;

// To rank 0, which reads them after the next meeting.
void put_down(const std::string& figures, processes::Meeting& meeting, std::uint32_t rank) {
  if (figures.size() + 1 > meeting.slot_bytes()) {
    throw Error(MILLPOND_E_ARGUMENT, "bench", "the figures of a rank are too many")
        .want(figures.size() + 1, meeting.slot_bytes())
        .remedy("Ask for fewer --steps");
  }
  std::memcpy(meeting.slot(rank), figures.c_str(), figures.size() + 1);
}

std::vector<Json> take_up(const processes::Meeting& meeting) {
  std::vector<Json> ranks;
  for (std::uint32_t rank = 0; rank < meeting.ranks(); ++rank) {
    ranks.push_back(Json::parse(reinterpret_cast<const char*>(meeting.slot(rank))));
  }
  return ranks;
}

int run_rank(const BenchArguments& all, OutputFile& json, processes::Meeting& meeting,
             std::uint32_t rank) {
  Progress progress(all.quiet, rank, all.ranks);
  try {
    const BenchArguments arguments = arguments_of_rank(all, rank);
    const BenchResult result = run_bench(arguments, progress, Company(meeting, rank));
    put_down(bench_json(arguments, result), meeting, rank);
    meeting.meet(rank, "gather the figures");
    if (rank != 0) return kExitOk;
    const Json node = merge_ranks(take_up(meeting));
    std::fputs(ranks_table(node).c_str(), json.is_standard_output() ? stderr : stdout);
    std::fflush(nullptr);
    json.write(node.dump(2) + "\n");
    return kExitOk;
  } catch (const std::exception& error) {
    progress.error("millpond: " + with_flag_names(error.what()));
    return exit_code_of(error);
  }
}

}  // namespace

BenchArguments arguments_of_rank(const BenchArguments& arguments, std::uint32_t rank) {
  BenchArguments own = arguments;
  own.params = arguments.params / arguments.ranks + (rank < arguments.params % arguments.ranks);
  own.rank = rank;
  own.serial_steps = 0;
  if (own.device == "cuda") own.device += ":" + std::to_string(rank);
  return own;
}

int run_bench_ranks(const BenchArguments& arguments, OutputFile& json) {
  processes::Meeting meeting(arguments.ranks, kSlotBytes, arguments.rank_timeout_s);
  return processes::run_ranks(
      meeting, [&](std::uint32_t rank) { return run_rank(arguments, json, meeting, rank); },
      [&](std::string_view line) {
        if (arguments.quiet) return;
        std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
      });
}

}  // namespace millpond::cli
