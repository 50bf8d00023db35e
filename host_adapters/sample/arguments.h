// The command line of millpond-sample.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_ARGUMENTS_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_ARGUMENTS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "host_adapters/sample/layout.h"
#include "host_adapters/sample/schedule.h"

namespace millpond::sample {

enum class Mode : std::uint8_t { kStreamed, kResident, kCompare, kFormats };

struct Arguments {
  Mode mode = Mode::kStreamed;
  std::filesystem::path text;

  Shape shape;
  std::uint64_t steps = 400;
  std::uint64_t stop_after = 0;  // 0: after `steps`
  std::size_t batch = 512;
  Hyperparameters hyper;
  std::uint64_t seed = 1;
  std::size_t threads = 0;
  std::uint64_t evaluations = 8;
  std::size_t evaluation_bytes = 32768;
  std::uint64_t compare_every = 1;

  std::filesystem::path plugin;
  std::vector<std::string> scratch;
  std::string moments = "fp32";
  std::uint64_t host_memory_bytes = 0;  // 0: the plugin's choice; so the three below
  std::uint64_t tile_elements = 0;
  std::uint64_t block_elements = 0;
  std::uint64_t bucket_elements = 0;
  std::string log_level = "warning";
  std::string io_engine;
  std::vector<std::string> options;  // KEY=JSON, passed on as they are

  std::filesystem::path save;
  std::uint64_t save_every = 0;
  std::filesystem::path resume;
  bool weights_only = false;
  bool new_hyperparameters = false;

  std::uint32_t ranks = 1;
  std::uint64_t micro_batches = 4;
  double rank_timeout_s = 60.0;
  std::string device = "cpu";       // or "cuda", "cuda:1"
  std::string collective = "auto";  // "shared", "nccl"

  std::filesystem::path json;
  bool quiet = false;

  // The step that this run ends with.
  std::uint64_t last_step() const {
    return stop_after != 0 && stop_after < steps ? stop_after : steps;
  }
  // The plugin's options document.
  std::string options_json(std::uint32_t rank) const;
};

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;     // the plugin, a file, the text
inline constexpr int kExitUsage = 2;      // the command line
inline constexpr int kExitDifferent = 3;  // --compare or --formats found a difference

// Nothing: *exit_code says how to end (0 after --help). Errors are already told.
std::optional<Arguments> parse_arguments(int count, char** values, int* exit_code);

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_ARGUMENTS_H_
