// The drive's own limit: the bytes, transfer size and mix of a step, moved by a raw engine without
// anything else.
#ifndef MILLPOND_PLUGIN_PROBE_DRIVE_H_
#define MILLPOND_PLUGIN_PROBE_DRIVE_H_

#include <cstdint>
#include <string>

namespace millpond::plugin {

struct DriveRequest {
  std::string directory;                   // a file is made here, and is gone afterwards
  std::string direct = "auto";             // as the option
  std::string engine = "auto";             // as the option
  std::uint32_t queue_depth = 0;           // 0: the engine's default
  std::uint64_t transfer_bytes = 4 << 20;  // multiple of 4096
  std::uint64_t span_bytes = 4ull << 30;   // of the file; written once before anything is timed
  std::uint64_t move_bytes = 4ull << 30;   // reads and writes together, while timed
  double read_share = 0.5;                 // 1: reads only, 0: writes only
};

struct DriveRate {
  double bytes_per_s = 0;
  double seconds = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::string engine;
  bool direct = false;
};

// Reads and overwrites go through the file in order, from two places, as a step does. Throws Error
// of the engine.
DriveRate measure_drive(const DriveRequest& request);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PROBE_DRIVE_H_
