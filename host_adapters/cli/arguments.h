// The command line of `millpond`.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_ARGUMENTS_H_
#define MILLPOND_HOST_ADAPTERS_CLI_ARGUMENTS_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace millpond::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,      // the plugin, a file or the machine failed
  kExitUsage = 2,       // wrong command line
  kExitUnsuitable = 3,  // doctor: streaming will not work here
  kExitDiffers = 4,     // diff: the saves differ
};

// What every command has.
struct CommonArguments {
  std::filesystem::path plugin;
  std::filesystem::path json;
  bool quiet = false;
};

struct BenchArguments : CommonArguments {
  std::uint64_t params = 100'000'000;
  std::string moments = "fp32";
  std::string parameters = "bf16";
  std::string gradients = "fp32";
  std::uint64_t shard_elements = 50'000'000;
  std::uint64_t tier_bytes = 0;  // 0: the plugin's "auto"
  std::vector<std::string> scratch;
  std::string engine = "auto";
  std::string direct = "auto";  // "auto", "true", "false"
  std::string device = "cpu";
  std::uint32_t steps = 5;
  std::uint32_t warmup = 2;
  std::uint32_t serial_steps = 1;
  std::uint64_t tile_elements = 0;
  std::uint64_t bucket_elements = 200'000'000;
  std::uint32_t queue_depth = 0;
  std::uint32_t threads = 0;
  std::uint64_t ceiling_bytes = 4ull << 30;  // the most that one measurement of the drive moves
  bool verbose = false;
  std::vector<std::string> options;  // KEY=JSON
  std::uint32_t ranks = 1;           // processes of this machine, which share `params`
  std::uint32_t rank = 0;            // of them; params are then this one's
  double rank_timeout_s = 1800;

  std::string options_json() const;
  std::optional<std::int32_t> cuda_device() const;  // nothing: the CPU
};

struct DoctorArguments : CommonArguments {
  std::string directory;
  std::uint64_t params = 0;  // 0: the space is not judged against a state
  std::string moments = "fp32";
  std::uint64_t measured_bytes = 512ull << 20;  // the drive's test file
  bool measure = true;
};

// inspect, verify, reshard, import, export, diff.
struct FilesArguments : CommonArguments {
  std::string name;  // of the command
  std::string path, save_id;
  std::string other, other_save_id;
  std::string to;
  std::string layout;  // a file
  std::uint32_t world_size = 0;
};

struct Arguments {
  enum class Command : std::uint8_t { kBench, kDoctor, kFiles } command = Command::kBench;
  FilesArguments files;
  BenchArguments bench;
  DoctorArguments doctor;
};

// Nothing, and *exit_code, where there is nothing to do: --help, --version, a wrong command line
// (told on the error stream).
std::optional<Arguments> parse_arguments(int count, char** values, int* exit_code);

// Bytes of state a parameter: fp32 main and both moments as stored, scales not counted.
std::uint64_t state_bytes_of(const std::string& moments, bool has_main);

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_ARGUMENTS_H_
