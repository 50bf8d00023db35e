// How fast the scratch directories are together, measured for a moment before a first bind.
#ifndef MILLPOND_PLUGIN_STORE_DRIVE_RATE_H_
#define MILLPOND_PLUGIN_STORE_DRIVE_RATE_H_

#include <cstdint>
#include <string>

#include "plugin/options/options.h"

namespace millpond::plugin {

struct DriveSpeed {
  double bytes_per_s = 0;  // reads and writes mixed; where nothing was measured, an assumption
  bool measured = false;
  std::string sentence;  // for the log
};

DriveSpeed assumed_speed();

// Takes about half a second a filesystem and 256 MiB of its space; directories on one filesystem
// count once. Where it cannot be measured: the assumption, and why.
DriveSpeed measure_speed(const Options& options);

// What is wanted in flight, in bytes: what passes while the caller's thread works on a tile and
// does not look at the engine.
std::uint64_t depth_bytes_for(const DriveSpeed& speed);
// Elements of a tile: of faster drives larger ones, so that handling one stays small beside moving
// it.
std::uint64_t tile_elements_for(const DriveSpeed& speed);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_DRIVE_RATE_H_
