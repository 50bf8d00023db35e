#include "host_adapters/sample/report.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "host_adapters/command_line/flag_names.h"

namespace millpond::sample {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string number(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string bytes(std::uint64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 10'000'000'000) return number("%.1f GB", value / 1e9);
  if (count >= 10'000) return number("%.3f MB", value / 1e6);
  return std::to_string(count) + " B";
}

// One line for each rank, and who was last: ranks of a node share its drive and memory.
std::string rank_lines(const std::vector<RankFigures>& ranks) {
  std::string out =
      "\nrank   optimizer ms   read, last step   written   state in memory   waited most for\n";
  RankFigures sum;
  std::size_t slowest = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    char line[200];
    std::snprintf(line, sizeof(line), "%4zu %14.2f %17s %9s %17s   %s\n", r,
                  ranks[r].optimizer_seconds * 1e3, bytes(ranks[r].bytes_read).c_str(),
                  bytes(ranks[r].bytes_written).c_str(), bytes(ranks[r].resident_bytes).c_str(),
                  ranks[r].bound_by);
    out += line;
    sum.bytes_read += ranks[r].bytes_read;
    sum.bytes_written += ranks[r].bytes_written;
    sum.resident_bytes += ranks[r].resident_bytes;
    if (ranks[r].optimizer_seconds > ranks[slowest].optimizer_seconds) slowest = r;
  }
  const RankFigures& last = ranks[slowest];
  return out + "together: " + bytes(sum.bytes_read) + " read, " + bytes(sum.bytes_written) +
         " written in " + number("%.2f ms", last.optimizer_seconds * 1e3) + ", " +
         bytes(sum.resident_bytes) + " in memory; slowest: rank " + std::to_string(slowest) +
         (last.bound_by[0] == '\0' ? "" : std::string(", which waited most for ") + last.bound_by) +
         "\n";
}

void row(std::string& out, const std::string& title, const std::vector<std::string>& cells) {
  out += title + std::string(title.size() < 34 ? 34 - title.size() : 1, ' ');
  for (const std::string& cell : cells) {
    out += std::string(cell.size() < 14 ? 14 - cell.size() : 1, ' ') + cell;
  }
  out += '\n';
}

// Where the last step's time went, of the streamed side.
void stages(std::string& out, const RunResult& result) {
  constexpr const char* kNames[MILLPOND_STAGES] = {"fetch", "upload", "update", "download",
                                                   "flush"};
  for (std::uint32_t s = 0; s < MILLPOND_STAGES; ++s) {
    std::vector<std::string> cells;
    bool busy = false;
    for (const Costs& costs : result.costs) {
      const millpond_step_figures& figures = costs.last.figures;
      busy |= figures.busy_seconds[s] > 0;
      cells.push_back(figures.outcome != MILLPOND_STEP_DONE
                          ? "-"
                          : number("%.2f ms", figures.busy_seconds[s] * 1e3) +
                                (figures.bound_by == s ? " *" : ""));
    }
    if (busy) row(out, std::string("busy, last step: ") + kNames[s], cells);
  }
}

// Of the streamed side, in the last step that was taken.
bool nothing_moved(const RunResult& result) {
  if (result.names.back() != "streamed" ||
      result.costs.back().last.figures.outcome != MILLPOND_STEP_DONE) {
    return false;
  }
  return std::ranges::all_of(result.ranks, [](const RankFigures& rank) {
    return rank.bytes_read == 0 && rank.bytes_written == 0;
  });
}

}  // namespace

std::string table(const Arguments& arguments, const RunResult& result) {
  std::string out = "\n";
  for (std::size_t s = 0; s < result.names.size(); ++s) {
    out += result.names[s] + ": " + result.costs[s].description + "\n";
  }
  out += result.place + "\n";
  out += std::to_string(result.parameters) + " parameters, text of " + bytes(result.text_bytes) +
         (arguments.mode == Mode::kResident ? "" : ", moments " + arguments.moments) + "\n\n";
  const auto each = [&](const std::string& title,
                        const std::function<std::string(const Costs&)>& cell) {
    std::vector<std::string> cells;
    for (const Costs& costs : result.costs) cells.push_back(cell(costs));
    row(out, title, cells);
  };
  row(out, "", result.names);
  for (const Evaluation& evaluation : result.evaluations) {
    row(out, "bits per byte at step " + std::to_string(evaluation.step),
        std::vector(result.names.size(), number("%.4f", evaluation.bits_per_byte)));
  }
  each("ms a step (median)",
       [](const Costs& c) { return number("%.2f", median(c.step_seconds) * 1e3); });
  each("  of it the optimizer",
       [](const Costs& c) { return number("%.2f", median(c.optimizer_seconds) * 1e3); });
  each("optimizer state in memory", [](const Costs& c) { return bytes(c.resident_bytes); });
  if (result.first_step == 1) {
    each("read, first step (mains only)", [](const Costs& c) { return bytes(c.first.bytes_read); });
    each("written, first step", [](const Costs& c) { return bytes(c.first.bytes_written); });
  }
  each("read, last step", [](const Costs& c) { return bytes(c.last.bytes_read); });
  each("written, last step", [](const Costs& c) { return bytes(c.last.bytes_written); });
  if (nothing_moved(result)) {
    out += "all of the state fits in the host tier: nothing was streamed; it would be with " +
           cli::smaller_memory(result.ranks[0].resident_bytes, 3 * sizeof(float)) + "\n";
  }
  if (!result.ranks.empty() && result.ranks[0].device_bytes != 0) {
    row(out, "device memory in use, whole GPU", {bytes(result.ranks[0].device_bytes)});
    row(out, "  of it parameters and gradients", {bytes(result.model_device_bytes)});
  }
  stages(out, result);
  if (result.ranks.size() > 1) out += rank_lines(result.ranks);
  if (result.skipped != 0) out += std::to_string(result.skipped) + " steps were skipped\n";
  out += "\nA bigram model with this text's own frequencies: " +
         number("%.4f", result.bigram_bits_per_byte) +
         " bits per byte\n(model and bigram at the same " + std::to_string(result.evaluated_bytes) +
         " places, spread evenly over the text)\n";
  if (arguments.mode == Mode::kCompare) {
    out +=
        "Resident and streamed agree in every byte: parameters after every step, mains and "
        "moments every " +
        std::to_string(arguments.compare_every) + " steps.\n";
  }
  out += "Parameters XXH3-128 " + result.digest + "\n";
  return out;
}

std::string json_report(const Arguments& arguments, const RunResult& result) {
  nlohmann::ordered_json document;
  document["steps"] = arguments.steps;
  document["first_step"] = result.first_step;
  document["skipped_steps"] = result.skipped;
  document["moments"] = arguments.mode == Mode::kResident ? "fp32" : arguments.moments;
  document["parameters"] = result.parameters;
  document["text_bytes"] = result.text_bytes;
  document["evaluated_bytes"] = result.evaluated_bytes;
  document["bigram_bits_per_byte"] = result.bigram_bits_per_byte;
  nlohmann::ordered_json& evaluations = document["evaluations"] = nlohmann::ordered_json::array();
  for (const Evaluation& evaluation : result.evaluations) {
    evaluations.push_back({{"step", evaluation.step}, {"bits_per_byte", evaluation.bits_per_byte}});
  }
  document["bits_per_byte"] =
      result.evaluations.empty() ? 0.0 : result.evaluations.back().bits_per_byte;
  for (std::size_t s = 0; s < result.names.size(); ++s) {
    const Costs& costs = result.costs[s];
    document[result.names[s]] = {{"description", costs.description},
                                 {"step_seconds", median(costs.step_seconds)},
                                 {"optimizer_seconds", median(costs.optimizer_seconds)},
                                 {"resident_bytes", costs.resident_bytes},
                                 {"first_step_bytes_read", costs.first.bytes_read},
                                 {"first_step_bytes_written", costs.first.bytes_written},
                                 {"last_step_bytes_read", costs.last.bytes_read},
                                 {"last_step_bytes_written", costs.last.bytes_written}};
  }
  document["place"] = result.place;
  document["model_device_bytes"] = result.model_device_bytes;
  document["micro_batches"] = arguments.micro_batches;
  nlohmann::ordered_json& ranks = document["ranks"] = nlohmann::ordered_json::array();
  for (const RankFigures& figures : result.ranks) {
    ranks.push_back({{"optimizer_seconds", figures.optimizer_seconds},
                     {"last_step_bytes_read", figures.bytes_read},
                     {"last_step_bytes_written", figures.bytes_written},
                     {"resident_bytes", figures.resident_bytes},
                     {"device_bytes_in_use", figures.device_bytes},
                     {"bound_by", figures.bound_by}});
  }
  document["digest"] = "xxh3-128:" + result.digest;
  return document.dump(2) + "\n";
}

}  // namespace millpond::sample
