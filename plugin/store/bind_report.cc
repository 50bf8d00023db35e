// The plan that a BindReport tells, with what a step is expected to move.
#include <algorithm>

#include "plugin/store/binding.h"
#include "plugin/store/runtime.h"

namespace millpond::plugin {
namespace {

// Bytes per second of memory under the update.
constexpr double kAssumedMemory = 10.0e9;

}  // namespace

StepTraffic expected_traffic(const Plan& plan, std::uint64_t tier_tiles) {
  const std::uint64_t tiles = plan.tiles.size();
  const std::uint64_t kept = std::min(tier_tiles, tiles);
  std::uint64_t forward = 0, backward = 0;
  for (std::uint64_t t = 0; t < tiles; ++t) {
    if (t >= kept) forward += plan.tiles[t].total_bytes;
    if (t < tiles - kept) backward += plan.tiles[t].total_bytes;
  }
  const std::uint64_t mean = (forward + backward) / 2;
  return {mean, mean};
}

std::string Binding::make_report() const {
  const StreamedState& state = reused_ ? *store_.held_->streamed : *fresh_;
  PlanReport report;
  report.shards = profile_.shards.size();
  report.elements = plan_.elements;
  report.buckets = plan_.buckets.size();
  report.tiles = plan_.tiles.size();
  report.tile_elements = plan_.options.tile_elements;
  report.block_elements = plan_.options.block_elements;
  const std::vector<std::uint64_t> bytes = runtime_.bytes_by_root(state);
  for (std::size_t r = 0; r < bytes.size(); ++r) {
    const ScratchRoot& root = *runtime_.roots()[r];
    report.directories.push_back({root.path(), bytes[r], root.ability().direct});
  }
  report.host_bytes = runtime_.pipeline().host_bytes();
  report.device_bytes = device_->device_bytes();
  report.engine = runtime_.engine().name();
  report.engine_reason = runtime_.engine_reason();
  const StepTraffic traffic = expected_traffic(plan_, state.tier_tiles());
  report.read_bytes_per_step = traffic.read_bytes;
  report.write_bytes_per_step = traffic.write_bytes;
  const DriveSpeed& drive = runtime_.drive_speed();
  report.drive_bytes_per_second = drive.bytes_per_s;
  report.drive_source = drive.measured ? "measured" : "assumed";
  // Everything overlaps: the slower of the two.
  report.expected_seconds_per_step =
      std::max(static_cast<double>(traffic.read_bytes + traffic.write_bytes) / drive.bytes_per_s,
               2.0 * static_cast<double>(plan_.state_bytes) / kAssumedMemory);
  report.tier_tiles = state.tier_tiles();
  report.shards_kept = kept_;
  return write_report({}, &report);
}

}  // namespace millpond::plugin
