// The options document, read once into one immutable struct.
#ifndef MILLPOND_PLUGIN_OPTIONS_OPTIONS_H_
#define MILLPOND_PLUGIN_OPTIONS_OPTIONS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/storage.h"

namespace millpond::plugin {

struct Options {
  std::vector<std::string> scratch;     // "scratch": a directory or a list; required
  std::uint64_t host_memory_bytes = 0;  // "host_memory_bytes": bytes, or "auto" (0)
  std::uint32_t local_rank = 0;         // "local_rank", "local_size": ranks that share the node
  std::uint32_t local_size = 1;
  std::uint64_t device_staging_bytes = 512ull << 20;
  std::uint64_t tile_elements = 0;  // 0: derived (1 Mi on CPU)
  std::uint64_t bucket_elements = 200'000'000;
  std::uint64_t block_elements = 0;  // 0: min(262144, tile_elements)
  kernels::Storage moments =
      kernels::Storage::kFp32;     // "fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"
  std::string io_engine = "auto";  // "auto", "io_uring", "threads"
  std::string direct = "auto";     // "auto", true, false -> "auto", "true", "false"
  std::uint32_t queue_depth = 0;   // 0: derived
  double io_timeout_s = 60.0;
  bool verify_reads = true;
  std::uint32_t update_threads = 0;    // 0: processors of the process / local_size
  std::uint64_t save_bytes_per_s = 0;  // 0: unlimited
  std::uint32_t log_level = 2;         // "error", "warning", "info", "debug"
};

// `minor`: the negotiated minor; keys introduced later are refused. Throws Error(E_OPTION) with
// field "options.<key>": not JSON, duplicate key, unknown key (names the nearest known one), wrong
// type, out of range, conflicting values.
Options parse_options(std::string_view json, std::uint32_t minor);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_OPTIONS_OPTIONS_H_
