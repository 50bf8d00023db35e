// What a bench comes to: a table for a person, a document for a program.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_BENCH_REPORT_H_
#define MILLPOND_HOST_ADAPTERS_CLI_BENCH_REPORT_H_

#include <string>

#include "host_adapters/cli/bench.h"

namespace millpond::cli {

std::string bench_table(const BenchArguments& arguments, const BenchResult& result);
std::string bench_json(const BenchArguments& arguments, const BenchResult& result);

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_BENCH_REPORT_H_
