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
  double bus_bytes_per_s = 0;  // of a device's bus, both ways at once, the total
  millpond_step_figures figures{};

  std::uint64_t moved() const { return figures.bytes_read + figures.bytes_written; }
  // Of the drive's ceiling; nothing where nothing moved.
  std::optional<double> drive_efficiency() const;
};

// What there is beside a step where the store is on a CUDA device.
struct CudaFigures {
  std::string device;  // its name
  double bus_up_bytes_per_s = 0;
  double bus_down_bytes_per_s = 0;
  double bus_both_bytes_per_s = 0;
  // The update of a tile of many small shards, and a kernel that moves the same bytes as one shard.
  std::uint32_t small_shards = 0;
  double small_bytes_per_s = 0;
  double small_ceiling_bytes_per_s = 0;
  // Device memory in bytes. Peaks are over parameters and gradients, as the driver counts.
  std::uint64_t parameter_bytes = 0;
  std::uint64_t gradient_bytes = 0;
  std::uint64_t staging_bytes = 0;  // as report/1 counts
  std::uint64_t bind_peak_bytes = 0;
  std::uint64_t step_peak_bytes = 0;
  // From nothing to a bound store, beside its parts done plainly.
  double bind_s = 0;
  double touch_s = 0;     // mapping as much memory as the host tier takes and touching its pages
  double register_s = 0;  // with CUDA
};

struct BenchResult {
  std::string plugin;            // description
  std::uint64_t main_bytes = 0;  // of the state: fp32 mains
  std::uint64_t state_bytes = 0;
  std::uint64_t update_bytes = 0;  // that an update of all parameters reads and writes
  client::Plan plan;
  millpond_plan_figures plan_figures{};
  millpond_runtime_figures runtime_figures{};
  double raw_read_bytes_per_s = 0;
  double raw_write_bytes_per_s = 0;
  std::vector<SerialStep> serial;
  std::vector<Pair> pairs;
  std::optional<CudaFigures> cuda;
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
  // On CUDA: the least that a step can take, by the bus (all state each way, at half of both ways
  // at once) and by all ceilings; the median of step / that; and the same for a bind.
  double bus_floor_s(const Pair& pair) const;
  double floor_s(const Pair& pair) const;
  double times_bus_floor() const;
  double times_floor() const;
  double start_floor_s() const;
  const Pair& middle() const;  // the pair whose step is the median
};

// With other ranks: all of them call it, with arguments of as many steps. Only rank 0 measures the
// drive, with what all of them move. Throws Error, PluginError, BindRefused.
BenchResult run_bench(const BenchArguments& arguments, Progress& progress,
                      const Company& company = {});

double median(std::vector<double> values);  // 0 for none

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_BENCH_H_
