// A flat C surface over plugin/probe/drive.h for measurements written in Python.
#include <cstdint>
#include <cstdio>

#include "millpond/error.hpp"
#include "plugin/probe/drive.h"

#define SHIM extern "C" __attribute__((visibility("default")))

// Bytes per second of a mix of reads and writes in the directory; negative where it failed.
SHIM double drive_shim_rate(const char* directory, std::uint64_t span_bytes,
                            std::uint64_t move_bytes, double read_share) {
  try {
    millpond::plugin::DriveRequest request;
    request.directory = directory;
    request.span_bytes = span_bytes;
    request.move_bytes = move_bytes;
    request.read_share = read_share;
    return millpond::plugin::measure_drive(request).bytes_per_s;
  } catch (const millpond::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return -1;
  }
}
