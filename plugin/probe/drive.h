// The drive's own limit: the bytes, transfer size and mix of a step, moved by a raw engine without
// anything else.
#ifndef MILLPOND_PLUGIN_PROBE_DRIVE_H_
#define MILLPOND_PLUGIN_PROBE_DRIVE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "plugin/probe/check.h"

namespace millpond::plugin {

// Called on the calling thread every few hundred MiB; may throw to give up.
using ProbeBeat = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

struct DriveRequest {
  std::string directory;                   // a file is made here, and is gone afterwards
  std::string direct = "auto";             // as the option
  std::string engine = "auto";             // as the option
  std::uint32_t queue_depth = 0;           // 0: the engine's default
  std::uint64_t transfer_bytes = 4 << 20;  // multiple of 4096
  std::uint64_t file_bytes = 4ull << 30;   // written once before anything is timed
  double most_seconds = 0;                 // each of writing and measuring ends then; 0: no limit
  bool operator==(const DriveRequest&) const = default;
};

struct DriveRate {
  double bytes_per_s = 0;
  double seconds = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
};

// Between its calls it holds a file and an engine, and no memory to speak of.
class DriveProbe {
 public:
  // Makes the file, reserved and written. Throws Error of the directory, the engine and the drive.
  explicit DriveProbe(const DriveRequest& request, const ProbeBeat& beat = {});
  ~DriveProbe();
  DriveProbe(const DriveProbe&) = delete;
  DriveProbe& operator=(const DriveProbe&) = delete;

  // Reads and overwrites go through the file in order, from two places, as a step does, until
  // `move_bytes` have moved in all. read_share 1: reads only, 0: writes only.
  DriveRate measure(double read_share, std::uint64_t move_bytes, const ProbeBeat& beat = {});

  const char* engine() const;
  bool direct() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether a drive of this mixed rate is worth streaming through.
Check judge_drive(double mixed_bytes_per_s);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PROBE_DRIVE_H_
