#include "plugin/store/drive_rate.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "millpond/error.hpp"
#include "plugin/probe/drive.h"

namespace millpond::plugin {
namespace {

// Of a common datacentre NVMe drive under a mixed load.
constexpr double kAssumedDrive = 2.0e9;
constexpr std::uint64_t kProbeFile = 256ull << 20;
constexpr double kProbeSeconds = 0.25;  // each of writing and measuring

// A tile of 12 MiB takes about 10 ms of update and checksums on two processors.
constexpr double kUnwatchedSeconds = 0.05;
constexpr std::uint64_t kLeastDepth = 64ull << 20;
constexpr std::uint64_t kMostDepth = 1ull << 30;
constexpr std::uint64_t kTile = 1ull << 20;
constexpr double kFast = 4.0e9;

}  // namespace

DriveSpeed assumed_speed() { return {kAssumedDrive, false, ""}; }

DriveSpeed measure_speed(const Options& options) {
  DriveSpeed speed;
  std::vector<dev_t> seen;
  try {
    for (const std::string& directory : options.scratch) {
      struct stat facts {};
      if (stat(directory.c_str(), &facts) == 0) {
        if (std::find(seen.begin(), seen.end(), facts.st_dev) != seen.end()) continue;
        seen.push_back(facts.st_dev);
      }
      DriveRequest request;
      request.directory = directory;
      request.direct = options.direct;
      request.engine = options.io_engine;
      request.queue_depth = options.queue_depth;
      request.file_bytes = kProbeFile;
      request.most_seconds = kProbeSeconds;
      speed.bytes_per_s += DriveProbe(request).measure(0.5, kProbeFile).bytes_per_s;
    }
  } catch (const Error& error) {
    speed = assumed_speed();
    speed.sentence = fmt::format("drive: {:.2f} GB/s assumed, not measured: {}",
                                 speed.bytes_per_s / 1e9, error.what());
    return speed;
  }
  // Ranks of the node share it.
  speed.bytes_per_s /= options.local_size;
  speed.measured = true;
  speed.sentence = fmt::format("drive: {:.2f} GB/s measured, reads and writes mixed, {} in flight",
                               speed.bytes_per_s / 1e9, depth_bytes_for(speed));
  return speed;
}

std::uint64_t depth_bytes_for(const DriveSpeed& speed) {
  return std::clamp(static_cast<std::uint64_t>(speed.bytes_per_s * kUnwatchedSeconds), kLeastDepth,
                    kMostDepth);
}

std::uint64_t tile_elements_for(const DriveSpeed& speed) {
  if (!speed.measured || speed.bytes_per_s < kFast) return kTile;
  return speed.bytes_per_s < 2 * kFast ? 2 * kTile : 4 * kTile;
}

}  // namespace millpond::plugin
