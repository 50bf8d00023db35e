// `millpond bench --ranks N`: processes of this machine, each with its part of the parameters and a
// plugin of its own, that do the same at the same time; and one report of the node.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_BENCH_RANKS_H_
#define MILLPOND_HOST_ADAPTERS_CLI_BENCH_RANKS_H_

#include <cstdint>

#include "host_adapters/cli/arguments.h"
#include "host_adapters/command_line/output_file.h"

namespace millpond::cli {

// The arguments of one of arguments.ranks: its part of the parameters, its device, no serial store.
BenchArguments arguments_of_rank(const BenchArguments& arguments, std::uint32_t rank);

// Forks: the caller has no other thread and has opened neither plugin nor device. Prints the node's
// report and writes it to `json`. The exit code: that of the first rank that failed, whose message
// is on the error stream; the others end within seconds.
int run_bench_ranks(const BenchArguments& arguments, OutputFile& json);

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_BENCH_RANKS_H_
