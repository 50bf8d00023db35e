#include "host_adapters/cli/bench_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "host_adapters/command_line/flag_names.h"
#include "host_adapters/command_line/quantity.h"

namespace millpond::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStages[MILLPOND_STAGES] = {"fetch", "upload", "update", "download", "flush"};

class Table {
 public:
  void heading(const std::string& text) { out_ += "\n" + text + "\n"; }
  void row(const std::string& name, const std::string& value, const std::string& remark = {}) {
    out_ += "  " + padded(name, 26) + padded(value, 14, true);
    if (!remark.empty()) out_ += "   " + remark;
    out_ += '\n';
  }
  void line(const std::string& text) { out_ += text + "\n"; }
  const std::string& text() const { return out_; }

  static std::string padded(const std::string& text, std::size_t width, bool right = false) {
    if (text.size() >= width) return text;
    const std::string space(width - text.size(), ' ');
    return right ? space + text : text + space;
  }

 private:
  std::string out_;
};

std::string percent(double share) { return show_number("%.1f %%", share * 100); }
std::string times(double ratio) { return show_number("%.2f x", ratio); }
template <typename Count>
std::string bytes(Count count) {
  return show_bytes(static_cast<double>(count));
}

void ceilings(const BenchResult& result, Table& table) {
  table.heading("Ceilings of this machine, in this run");
  table.row("drive, read", show_rate(result.raw_read_bytes_per_s));
  table.row("drive, written", show_rate(result.raw_write_bytes_per_s));
  if (const auto mixed = result.raw_mixed_bytes_per_s()) {
    table.row("drive, mixed as a step", show_rate(*mixed));
  }
  const double update = result.update_bytes_per_s();
  const double ceiling = result.update_ceiling_bytes_per_s();
  table.row(
      "update alone", show_rate(update),
      show_seconds(static_cast<double>(result.update_bytes) / update) + " for all parameters");
  table.row("same loads and stores", show_rate(ceiling),
            "without arithmetic; the update reaches " + percent(update / ceiling));
  if (!result.cuda) return;
  const CudaFigures& cuda = *result.cuda;
  table.row("update, small shards", show_rate(cuda.small_bytes_per_s),
            std::to_string(cuda.small_shards) + " of 1 to 2,000 elements: " +
                percent(cuda.small_bytes_per_s / cuda.small_ceiling_bytes_per_s) +
                " of their bytes as one shard without arithmetic");
  table.row("bus, to the device", show_rate(cuda.bus_up_bytes_per_s));
  table.row("bus, from the device", show_rate(cuda.bus_down_bytes_per_s));
  table.row("bus, both at once", show_rate(cuda.bus_both_bytes_per_s), "the total");
}

void device(const BenchResult& result, Table& table) {
  if (!result.cuda) return;
  const CudaFigures& cuda = *result.cuda;
  table.heading("The device, " + cuda.device);
  table.row("parameters", bytes(cuda.parameter_bytes));
  table.row("gradients", bytes(cuda.gradient_bytes));
  table.row("staging and tables", bytes(cuda.staging_bytes), "the plugin's, as it counts them");
  table.row("most in the bind", bytes(cuda.bind_peak_bytes),
            "over parameters and gradients, the driver's page tables for the tier with it");
  table.row("most in a step", bytes(cuda.step_peak_bytes), "over what the bind left");
  table.heading("Start");
  table.row("bind", show_seconds(cuda.bind_s),
            times(cuda.bind_s / result.start_floor_s()) +
                " of what its bytes need: " + show_seconds(result.start_floor_s()));
  table.row("  touching the tier", show_seconds(cuda.touch_s), "plainly, by all processors");
  table.row("  pinning it", show_seconds(cuda.register_s));
}

void serial_store(const BenchResult& result, Table& table) {
  if (result.serial.empty()) return;
  SerialStep sum;
  for (const SerialStep& step : result.serial) {
    sum.read_s += step.read_s;
    sum.update_s += step.update_s;
    sum.write_s += step.write_s;
    sum.bytes_read += step.bytes_read;
    sum.bytes_written += step.bytes_written;
  }
  const auto steps = static_cast<double>(result.serial.size());
  table.heading("Serial store: buffered; read, update, write, bucket by bucket");
  table.row("a step", show_seconds(*result.serial_step_s()));
  table.row("  reading", show_seconds(sum.read_s / steps),
            show_rate(static_cast<double>(sum.bytes_read) / sum.read_s));
  table.row("  updating", show_seconds(sum.update_s / steps));
  table.row("  writing", show_seconds(sum.write_s / steps),
            show_rate(static_cast<double>(sum.bytes_written) / sum.write_s));
}

void stages(const Pair& pair, Table& table) {
  for (std::uint32_t s = 0; s < MILLPOND_STAGES; ++s) {
    const double busy = pair.figures.busy_seconds[s];
    const double waiting = pair.figures.waiting_seconds[s];
    if (busy == 0 && waiting == 0) continue;
    table.row(std::string("  ") + kStages[s], show_seconds(busy),
              "busy; the step spent or waited " + show_seconds(waiting) +
                  (pair.figures.bound_by == s ? " on it: this bounds it" : " on it"));
  }
}

void steps(const BenchResult& result, Table& table) {
  const Pair& pair = result.middle();
  table.heading("The plugin's step, median of " + std::to_string(result.pairs.size()));
  std::vector<double> returned;
  for (const Pair& each : result.pairs) returned.push_back(each.step_s);
  table.row("a step", show_seconds(result.median_step_s()),
            "until its last write is through; returns after " +
                show_seconds(median(std::move(returned))));
  table.row(
      "expected at bind", show_seconds(result.plan.expected_seconds_per_step),
      "drive " + result.plan.drive_source + ": " + show_rate(result.plan.drive_bytes_per_second));
  stages(pair, table);
  table.row("read", bytes(pair.figures.bytes_read));
  table.row("written", bytes(pair.figures.bytes_written));
  table.row("from the tier", bytes(pair.figures.bytes_from_tier),
            std::to_string(pair.figures.tiles_from_tier) + " of " +
                std::to_string(pair.figures.tiles) + " tiles");
  if (result.plan_figures.tile_elements != 0 &&
      result.plan_figures.tier_tiles >= result.plan_figures.tiles) {
    table.line("  all of the state fits in the host tier: nothing was streamed; it would be with " +
               smaller_memory(result.state_bytes,
                              result.plan_figures.tile_bytes / result.plan_figures.tile_elements));
  }
  if (const auto efficiency = result.drive_efficiency()) {
    table.row("of the drive's ceiling", percent(*efficiency));
  }
  if (result.cuda) {
    table.row("against the bus alone", times(result.times_bus_floor()),
              "all state each way, at half of both ways at once: " +
                  show_seconds(result.bus_floor_s(pair)));
    table.row("against all ceilings", times(result.times_floor()),
              show_seconds(result.floor_s(pair)) + " at least");
  }
  table.row("of the update's speed", percent(result.update_efficiency()));
  if (const auto speedup = result.speedup()) {
    const auto predicted = result.predicted_speedup();
    table.row("faster than serial", times(*speedup),
              predicted ? "rates of drive and update alone predict " + times(*predicted) : "");
  }
  if (result.rss_peak_bytes != 0) {
    table.row("peak of memory", bytes(result.rss_peak_bytes),
              "of it parameters and gradients " + bytes(result.rss_host_bytes) + ", tier " +
                  bytes(result.runtime_figures.host_bytes));
  }
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json serial_json(const BenchResult& result) {
  if (result.serial.empty()) return nullptr;
  Json list = {{"steps", result.serial.size()}};
  const auto each = [&](const char* key, double SerialStep::*member) {
    for (const SerialStep& step : result.serial) list[key].push_back(step.*member);
  };
  each("read_s", &SerialStep::read_s);
  each("update_s", &SerialStep::update_s);
  each("write_s", &SerialStep::write_s);
  for (const SerialStep& step : result.serial) {
    list["read_bytes_per_s"].push_back(static_cast<double>(step.bytes_read) / step.read_s);
    list["write_bytes_per_s"].push_back(static_cast<double>(step.bytes_written) / step.write_s);
  }
  return list;
}

Json by_stage(const double (&seconds)[MILLPOND_STAGES]) {
  Json object = Json::object();
  for (std::uint32_t s = 0; s < MILLPOND_STAGES; ++s) object[kStages[s]] = seconds[s];
  return object;
}

Json cuda_json(const BenchResult& result) {
  if (!result.cuda) return nullptr;
  const CudaFigures& cuda = *result.cuda;
  Json object = {{"device_name", cuda.device},
                 {"bus_up_bytes_per_s", cuda.bus_up_bytes_per_s},
                 {"bus_down_bytes_per_s", cuda.bus_down_bytes_per_s},
                 {"bus_both_bytes_per_s", cuda.bus_both_bytes_per_s}};
  for (const Pair& pair : result.pairs) {
    object["bus_both_list"].push_back(pair.bus_bytes_per_s);
    object["bus_floor_list"].push_back(result.bus_floor_s(pair));
    object["floor_list"].push_back(result.floor_s(pair));
    object["update_list"].push_back(pair.update_bytes_per_s);
    object["update_ceiling_list"].push_back(pair.update_ceiling_bytes_per_s);
  }
  object["times_bus_floor"] = result.times_bus_floor();
  object["times_floor"] = result.times_floor();
  object["small_shards"] = cuda.small_shards;
  object["small_bytes_per_s"] = cuda.small_bytes_per_s;
  object["small_ceiling_bytes_per_s"] = cuda.small_ceiling_bytes_per_s;
  object["parameter_bytes"] = cuda.parameter_bytes;
  object["gradient_bytes"] = cuda.gradient_bytes;
  object["staging_bytes"] = cuda.staging_bytes;
  object["bind_peak_bytes"] = cuda.bind_peak_bytes;
  object["step_peak_bytes"] = cuda.step_peak_bytes;
  object["bind_s"] = cuda.bind_s;
  object["start_floor_s"] = result.start_floor_s();
  object["touch_s"] = cuda.touch_s;
  object["register_s"] = cuda.register_s;
  return object;
}

}  // namespace

std::string bench_table(const BenchArguments& arguments, const BenchResult& result) {
  Table table;
  const millpond_runtime_figures& runtime = result.runtime_figures;
  table.line(result.plugin);
  table.line(show_count(arguments.params) + " parameters in " + arguments.parameters +
             ", gradients in " + arguments.gradients + ", moments in " + arguments.moments +
             ": state of " + bytes(result.state_bytes));
  table.line(std::to_string(result.plan_figures.tiles) +
             (result.plan_figures.tiles == 1 ? " tile of " : " tiles of ") +
             bytes(result.plan_figures.tile_bytes) + "; tier of " + bytes(runtime.host_bytes) +
             " keeps " + std::to_string(result.plan_figures.tier_tiles) + " of them, ring of " +
             std::to_string(runtime.ring_places));
  table.line("engine " + std::string(runtime.engine) +
             (runtime.direct != 0 ? ", O_DIRECT, " : ", buffered, ") +
             std::to_string(runtime.update_threads) + " threads");
  for (const auto& directory : result.plan.directories) {
    table.line("  " + directory.path + ": " + bytes(directory.bytes));
  }
  if (result.plan.directories.size() > 1) {
    table.line("  (the drive's ceilings are those of the first directory alone)");
  }
  ceilings(result, table);
  serial_store(result, table);
  steps(result, table);
  device(result, table);
  return table.text();
}

std::string bench_json(const BenchArguments& arguments, const BenchResult& result) {
  const millpond_runtime_figures& runtime = result.runtime_figures;
  const Pair& middle = result.middle();
  Json document;
  document["params"] = arguments.params;
  document["bytes_per_step_read"] = middle.figures.bytes_read;
  document["bytes_per_step_written"] = middle.figures.bytes_written;
  document["step_s"] = Json::array();
  for (const Pair& pair : result.pairs) document["step_s"].push_back(pair.step_s);
  document["raw_mixed_bytes_per_s"] = or_null(result.raw_mixed_bytes_per_s());
  document["update_bytes_per_s"] = result.update_bytes_per_s();
  document["update_ceiling_bytes_per_s"] = result.update_ceiling_bytes_per_s();
  document["serial_step_s"] = or_null(result.serial_step_s());
  document["drive_efficiency"] = or_null(result.drive_efficiency());
  document["tier_bytes"] = runtime.host_bytes;
  document["rss_peak_bytes"] =
      result.rss_peak_bytes != 0 ? Json(result.rss_peak_bytes) : Json(nullptr);
  document["engine"] = runtime.engine;
  document["direct"] = runtime.direct != 0;
  document["moments"] = arguments.moments;
  document["parameters"] = arguments.parameters;
  document["gradients"] = arguments.gradients;
  document["state_bytes"] = result.state_bytes;
  document["tiles"] = result.plan_figures.tiles;
  document["tier_tiles"] = result.plan_figures.tier_tiles;
  document["ring_tiles"] = runtime.ring_places;
  document["tile_elements"] = result.plan_figures.tile_elements;
  document["tile_bytes"] = result.plan_figures.tile_bytes;
  document["buckets"] = result.plan_figures.buckets;
  document["update_threads"] = runtime.update_threads;
  document["warmup_steps"] = arguments.warmup;
  document["settled_s"] = Json::array();
  document["raw_mixed_list"] = Json::array();
  document["drive_efficiency_list"] = Json::array();
  for (const Pair& pair : result.pairs) {
    document["settled_s"].push_back(pair.settled_s);
    document["raw_mixed_list"].push_back(
        pair.raw_mixed_bytes_per_s > 0 ? Json(pair.raw_mixed_bytes_per_s) : Json(nullptr));
    document["drive_efficiency_list"].push_back(or_null(pair.drive_efficiency()));
  }
  document["raw_read_bytes_per_s"] = result.raw_read_bytes_per_s;
  document["raw_write_bytes_per_s"] = result.raw_write_bytes_per_s;
  document["update_efficiency"] = result.update_efficiency();
  document["rss_host_bytes"] = result.rss_host_bytes;
  document["bytes_from_tier"] = middle.figures.bytes_from_tier;
  document["bound_by"] = kStages[std::min(middle.figures.bound_by, MILLPOND_STAGES - 1)];
  document["busy_s"] = by_stage(middle.figures.busy_seconds);
  document["waiting_s"] = by_stage(middle.figures.waiting_seconds);
  document["serial"] = serial_json(result);
  document["cuda"] = cuda_json(result);
  document["speedup"] = or_null(result.speedup());
  document["predicted_speedup"] = or_null(result.predicted_speedup());
  document["expected_s"] = result.plan.expected_seconds_per_step;
  document["expected_drive_bytes_per_s"] = result.plan.drive_bytes_per_second;
  document["expected_drive_source"] = result.plan.drive_source;
  document["plugin"] = result.plugin;
  document["directories"] = Json::array();
  for (const auto& directory : result.plan.directories) {
    document["directories"].push_back(
        {{"path", directory.path}, {"bytes", directory.bytes}, {"direct", directory.direct}});
  }
  return document.dump(2) + "\n";
}

}  // namespace millpond::cli
