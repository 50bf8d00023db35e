// `millpond bench`: a synthetic store through the plugin, beside what the machine itself can do.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_BENCH_H_
#define MILLPOND_HOST_ADAPTERS_CLI_BENCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host_adapters/cli/arguments.h"
#include "host_adapters/cli/company.h"
#include "host_adapters/cli/progress.h"
#include "host_adapters/cli/serial.h"
#include "millpond/client/binding.h"
#include "millpond/report.h"

namespace millpond::cli {

// One step and the ceilings that were measured right before it.
struct Pair {
  double step_s = 0;                 // inside step
  double settled_s = 0;              // until its last write was through as well
  double raw_mixed_bytes_per_s = 0;  // of the drive, in the step's mix; 0: nothing had to move
  double update_bytes_per_s = 0;
  double update_ceiling_bytes_per_s = 0;
  millpond_step_figures figures{};

  std::uint64_t moved() const { return figures.bytes_read + figures.bytes_written; }
  // Of the drive's ceiling; nothing where nothing moved.
  std::optional<double> drive_efficiency() const;
};

struct BenchResult {
  std::string plugin;  // description
  std::uint64_t state_bytes = 0;
  std::uint64_t update_bytes = 0;  // that an update of all parameters reads and writes
  client::Plan plan;
  millpond_plan_figures plan_figures{};
  millpond_runtime_figures runtime_figures{};
  double raw_read_bytes_per_s = 0;
  double raw_write_bytes_per_s = 0;
  std::vector<SerialStep> serial;
  std::vector<Pair> pairs;
  std::uint64_t rss_host_bytes = 0;  // what the host held before the store was bound
  std::uint64_t rss_peak_bytes = 0;  // in bind and steps; 0 where the kernel does not say

  double median_step_s() const;
  // Medians; nothing where nothing was measured.
  std::optional<double> serial_step_s() const;
  std::optional<double> raw_mixed_bytes_per_s() const;
  std::optional<double> drive_efficiency() const;
  std::optional<double> speedup() const;  // serial step / step
  // The same from the drive's read, write and mixed rates and the update's.
  std::optional<double> predicted_speedup() const;
  double update_bytes_per_s() const;
  double update_ceiling_bytes_per_s() const;
  double update_efficiency() const;  // the update's own time / the step's
  const Pair& middle() const;        // the pair whose step is the median
};

// With other ranks: all of them call it, with arguments of as many steps. Only rank 0 measures the
// drive, with what all of them move. Throws Error, PluginError, BindRefused.
BenchResult run_bench(const BenchArguments& arguments, Progress& progress,
                      const Company& company = {});

double median(std::vector<double> values);  // 0 for none

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_BENCH_H_
