// The figures of the ranks of one node as those of the node: what they moved together, how long the
// last of them took, which one that was and what it waited for.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_RANKS_REPORT_H_
#define MILLPOND_HOST_ADAPTERS_CLI_RANKS_REPORT_H_

#include <string>
#include <vector>

#include "host_adapters/cli/probe.h"

namespace millpond::cli {

// Of bench_json's documents, by rank, at least one; they have as many steps each. A step of the
// node begins on all ranks together and ends when the last one's writes are through. What only one
// rank measured is rank 0's. The keys are in bench --help.
Json merge_ranks(const std::vector<Json>& ranks);

// A line a rank, and one of the node.
std::string ranks_table(const Json& node);

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_RANKS_REPORT_H_
