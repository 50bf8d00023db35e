#include "host_adapters/sample/formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "host_adapters/sample/trainer.h"

namespace millpond::sample {
namespace {

struct Format {
  const char* name;
  double limit;  // of the bits per byte, as a share of fp32's
};

constexpr std::array kFormats = {Format{"fp32", 0.0}, Format{"bf16", 0.005}, Format{"fp16", 0.005},
                                 Format{"fp8_e4m3", 0.03}, Format{"fp8_e5m2", 0.03}};

}  // namespace

FormatTable try_formats(Arguments arguments, const Place& place, Progress& progress) {
  arguments.mode = Mode::kStreamed;
  FormatTable table;
  table.text = "\nmoments     bits/byte   from fp32   limit   largest parameter difference\n";
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  RunResult exact;
  for (const Format& format : kFormats) {
    progress.line(std::string("moments ") + format.name);
    arguments.moments = format.name;
    RunResult result = train(arguments, place, progress);
    if (exact.evaluations.empty()) exact = result;
    const double bits = result.evaluations.back().bits_per_byte;
    const double share = bits / exact.evaluations.back().bits_per_byte - 1.0;
    double largest = 0.0;
    bool finite = std::isfinite(bits);
    for (std::size_t i = 0; i < result.final_parameters.size(); ++i) {
      const double difference =
          std::fabs(static_cast<double>(result.final_parameters[i]) - exact.final_parameters[i]);
      finite = finite && std::isfinite(difference);
      largest = std::max(largest, difference);
    }
    const bool within = finite && std::fabs(share) <= format.limit;
    table.within_limits = table.within_limits && within;
    char line[160];
    std::snprintf(line, sizeof(line), "%-10s  %9.4f   %+8.3f%%  %5.1f%%   %.5f%s\n", format.name,
                  bits, share * 100.0, format.limit * 100.0, largest, within ? "" : "   TOO FAR");
    table.text += line;
    rows.push_back({{"moments", format.name},
                    {"bits_per_byte", bits},
                    {"from_fp32", share},
                    {"limit", format.limit},
                    {"largest_parameter_difference", largest},
                    {"within_limit", within}});
  }
  table.json = nlohmann::ordered_json({{"formats", rows}}).dump(2) + "\n";
  return table;
}

}  // namespace millpond::sample
