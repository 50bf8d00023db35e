#include "host_adapters/cli/ranks_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "host_adapters/cli/bench.h"
#include "host_adapters/command_line/quantity.h"

namespace millpond::cli {
namespace {

double number(const Json& document, const char* key) { return document.at(key).get<double>(); }

std::uint64_t sum_of(const std::vector<Json>& ranks, const char* key) {
  std::uint64_t sum = 0;
  for (const Json& rank : ranks) sum += rank.at(key).get<std::uint64_t>();
  return sum;
}

// Of each step: how long the last rank took, and all of them in the mean.
struct Steps {
  std::vector<double> last, mean;
};

Steps steps_of(const std::vector<Json>& ranks) {
  Steps steps;
  for (std::size_t i = 0; i < ranks.front().at("settled_s").size(); ++i) {
    double last = 0, sum = 0;
    for (const Json& rank : ranks) {
      const double seconds = rank.at("settled_s").at(i).get<double>();
      last = std::max(last, seconds);
      sum += seconds;
    }
    steps.last.push_back(last);
    steps.mean.push_back(sum / static_cast<double>(ranks.size()));
  }
  return steps;
}

// How much later than the mean of all ranks one is, in the median of the steps: 0.1 is a tenth.
double lateness(const Json& rank, const Steps& steps) {
  std::vector<double> values;
  for (std::size_t i = 0; i < steps.mean.size(); ++i) {
    values.push_back(rank.at("settled_s").at(i).get<double>() / steps.mean[i] - 1);
  }
  return median(std::move(values));
}

void add_drive(const std::vector<Json>& ranks, const Steps& steps, Json& node) {
  const Json& measured = ranks.front();
  node["raw_mixed_bytes_per_s"] = measured.at("raw_mixed_bytes_per_s");
  node["raw_mixed_list"] = measured.at("raw_mixed_list");
  const double moved = number(node, "bytes_per_step_read") + number(node, "bytes_per_step_written");
  std::vector<double> known;
  Json& list = node["drive_efficiency_list"] = Json::array();
  for (std::size_t i = 0; i < steps.last.size(); ++i) {
    const Json& rate = measured.at("raw_mixed_list").at(i);
    if (rate.is_null() || moved == 0) {
      list.push_back(nullptr);
      continue;
    }
    known.push_back(moved / steps.last[i] / rate.get<double>());
    list.push_back(known.back());
  }
  node["drive_efficiency"] = known.empty() ? Json(nullptr) : Json(median(known));
}

bool on_cuda(const Json& rank) { return rank.contains("cuda") && rank.at("cuda").is_object(); }

// Of each rank's bus alone and beside the others', and how much of the latter its steps used.
void add_buses(const std::vector<Json>& ranks, Json& node) {
  if (!std::all_of(ranks.begin(), ranks.end(), on_cuda)) return;
  std::vector<double> alone, at_once, used;
  for (const Json& rank : ranks) {
    const Json& cuda = rank.at("cuda");
    alone.push_back(number(cuda, "bus_both_bytes_per_s"));
    at_once.push_back(median(cuda.at("bus_both_list").get<std::vector<double>>()));
    used.push_back(1 / number(cuda, "times_bus_floor"));
  }
  node["bus_efficiency"] = *std::min_element(used.begin(), used.end());
  node["bus_alone_bytes_per_s"] = std::move(alone);
  node["bus_at_once_bytes_per_s"] = std::move(at_once);
}

std::string rates(const Json& list) {
  std::string out;
  for (const Json& rate : list) out += (out.empty() ? "" : ", ") + show_rate(rate.get<double>());
  return out;
}

std::string rank_line(std::size_t rank, const Json& figures, double late) {
  const std::string bound = figures.at("bound_by").get<std::string>();
  char line[200];
  std::snprintf(line, sizeof(line), "%6zu %11s %13s %13s %13s %+11.1f %%   %s, %s\n", rank,
                show_seconds(median(figures.at("settled_s").get<std::vector<double>>())).c_str(),
                show_bytes(number(figures, "bytes_per_step_read")).c_str(),
                show_bytes(number(figures, "bytes_per_step_written")).c_str(),
                show_bytes(number(figures, "tier_bytes")).c_str(), late * 100, bound.c_str(),
                show_seconds(number(figures.at("busy_s"), bound.c_str())).c_str());
  return line;
}

}  // namespace

Json merge_ranks(const std::vector<Json>& ranks) {
  const Steps steps = steps_of(ranks);
  Json node;
  node["ranks"] = ranks.size();
  node["params"] = sum_of(ranks, "params");
  node["bytes_per_step_read"] = sum_of(ranks, "bytes_per_step_read");
  node["bytes_per_step_written"] = sum_of(ranks, "bytes_per_step_written");
  node["settled_s"] = steps.last;
  node["mean_s"] = steps.mean;
  node["state_bytes"] = sum_of(ranks, "state_bytes");
  node["tier_bytes"] = sum_of(ranks, "tier_bytes");
  add_drive(ranks, steps, node);
  add_buses(ranks, node);
  std::size_t slowest = 0;
  std::vector<double> late;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    late.push_back(lateness(ranks[rank], steps));
    if (late[rank] > late[slowest]) slowest = rank;
  }
  const Json& last = ranks[slowest];
  node["lateness"] = late;
  node["slowest_rank"] = slowest;
  node["bound_by"] = last.at("bound_by");
  node["bound_s"] = last.at("busy_s").at(last.at("bound_by").get<std::string>());
  node["plugin"] = ranks.front().at("plugin");
  node["by_rank"] = ranks;
  return node;
}

std::string ranks_table(const Json& node) {
  const Json& ranks = node.at("by_rank");
  std::string out = node.at("plugin").get<std::string>() + "\n" +
                    show_count(node.at("params").get<std::uint64_t>()) + " parameters on " +
                    std::to_string(ranks.size()) + " ranks: state of " +
                    show_bytes(number(node, "state_bytes")) + ", tiers of " +
                    show_bytes(number(node, "tier_bytes")) + "\n\n" +
                    "  rank      a step          read       written          tier     than mean   "
                    "bound by, busy\n";
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    out += rank_line(rank, ranks.at(rank), node.at("lateness").at(rank).get<double>());
  }
  if (node.contains("bus_efficiency")) {
    out += "\nbus, both ways, by rank: alone " + rates(node.at("bus_alone_bytes_per_s")) +
           "; all at once " + rates(node.at("bus_at_once_bytes_per_s")) +
           ", of which the steps use " +
           show_number("%.1f %%", 100 * number(node, "bus_efficiency")) + " or more\n";
  }
  const auto slowest = node.at("slowest_rank").get<std::size_t>();
  out += "\nnode: " + show_bytes(number(node, "bytes_per_step_read")) + " read and " +
         show_bytes(number(node, "bytes_per_step_written")) + " written in " +
         show_seconds(median(node.at("settled_s").get<std::vector<double>>())) + " a step";
  if (!node.at("drive_efficiency").is_null()) {
    out += ", " + show_number("%.1f %%", 100 * number(node, "drive_efficiency")) +
           " of the drive's " + show_rate(number(node, "raw_mixed_bytes_per_s"));
  }
  return out + "; slowest: rank " + std::to_string(slowest) + ", " +
         show_number("%.1f %%", 100 * node.at("lateness").at(slowest).get<double>()) +
         " later than the mean, bound by " + node.at("bound_by").get<std::string>() +
         ", which was busy for " + show_seconds(number(node, "bound_s")) + "\n";
}

}  // namespace millpond::cli
