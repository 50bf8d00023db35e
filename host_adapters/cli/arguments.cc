#include "host_adapters/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "host_adapters/cli/files.h"
#include "host_adapters/command_line/plugin_options.h"
#include "host_adapters/command_line/quantity_option.h"

namespace millpond::cli {
namespace {

constexpr const char* kDescription =
    "Millpond on this machine: how fast it is (bench), whether it will work (doctor), and what is "
    "in\n"
    "its checkpoints (inspect, verify, reshard, import, export, diff).";
constexpr const char* kFooter =
    "Examples:\n"
    "  millpond doctor /mnt/nvme/scratch\n"
    "  millpond bench --scratch /mnt/nvme/scratch\n"
    "  millpond bench --scratch /mnt/nvme/scratch --params 1B --tier 8GiB --json figures.json\n"
    "\n"
    "Each command has a --help of its own.\n"
    "Exit codes: 0 done; 1 the plugin, a file or the machine failed; 2 wrong command line;\n"
    "3 doctor: streaming will not work here; 4 diff: the saves differ.";

constexpr const char* kBenchFooter =
    "One run measures, on this machine and one after another:\n"
    "  drive ceiling   the bytes of a step, mixed as in a step, moved by the raw engine alone\n"
    "  update ceiling  the loads and stores of the update, without its arithmetic\n"
    "  bus ceiling     with --device cuda: copies each way, and both at once\n"
    "  serial          a store that reads a bucket (buffered), updates it, writes it, one after "
    "another\n"
    "  step            the plugin's own step; each is measured right after a ceiling, and ratios\n"
    "                  are medians of these pairs, since drives drift\n"
    "\n"
    "Keys of --json (bytes, seconds; lists go by step; null where there is nothing to measure):\n"
    "  params, bytes_per_step_read, bytes_per_step_written, step_s, raw_mixed_bytes_per_s,\n"
    "  update_bytes_per_s, update_ceiling_bytes_per_s, serial_step_s, drive_efficiency,\n"
    "  tier_bytes, rss_peak_bytes, engine, direct,\n"
    "  moments, parameters, gradients, state_bytes, tiles, tier_tiles, ring_tiles, tile_elements,\n"
    "  tile_bytes, buckets, update_threads, warmup_steps, settled_s (until the last write is\n"
    "  through), raw_mixed_list, drive_efficiency_list, raw_read_bytes_per_s,\n"
    "  raw_write_bytes_per_s, update_efficiency (of the update's own speed), rss_host_bytes (what\n"
    "  the host holds: parameters and gradients), bytes_from_tier, bound_by, busy_s, waiting_s "
    "(by\n"
    "  stage), serial {steps, read_s, update_s, write_s, read_bytes_per_s, write_bytes_per_s},\n"
    "  speedup (serial_step_s / step), predicted_speedup (what the drive's read, write and mixed\n"
    "  rates say), expected_s, expected_drive_bytes_per_s, expected_drive_source (\"measured\" or\n"
    "  \"assumed\": what the plugin expected of a step at bind), plugin, directories\n"
    "With --ranks, of the node: ranks, by_rank (the above, by rank), mean_s (of each step: the\n"
    "  ranks' mean; settled_s is the last one's), lateness (by rank: how much later than the "
    "mean,\n"
    "  0.1 is a tenth), slowest_rank, and for that one bound_by and bound_s (how long that stage\n"
    "  was busy). Bytes are sums; the drive is measured by rank 0 while the others wait.\n"
    "  On CUDA, by rank and both ways together: bus_alone_bytes_per_s, bus_at_once_bytes_per_s;\n"
    "  bus_efficiency: the share of the latter that steps use, of the rank that uses least\n"
    "\n"
    "Examples:\n"
    "  millpond bench --scratch /mnt/nvme/scratch                     100 M parameters, auto tier\n"
    "  millpond bench --scratch /mnt/nvme/scratch --params 1B --tier 1GiB --steps 5\n"
    "  millpond bench --scratch /nvme0 --scratch /nvme1 --params 600M --moments bf16\n"
    "  millpond bench --scratch /mnt/nvme/scratch --serial-steps 0    without the serial store\n"
    "  millpond bench --scratch /mnt/nvme/scratch --device cuda:0 --params 1.6B --tier 10GiB\n"
    "  millpond bench --scratch /mnt/nvme/scratch --device cuda:0 --params 1.6B --tier 20GiB \\\n"
    "      --option device_staging_bytes=0    kernels that work on the pinned host tier\n"
    "  millpond bench --scratch /mnt/nvme/scratch --params 2B --tier 4GiB --ranks 2   how ranks "
    "share\n"
    "                                                                 the drive";

constexpr const char* kDoctorFooter =
    "Checks engine, O_DIRECT, O_TMPFILE, reflinks, RLIMIT_MEMLOCK, memory and control groups, "
    "free\n"
    "space, CUDA devices, and measures the drive. Each has a verdict and, where it is not ok, a\n"
    "remedy. Small files, and one of --drive-bytes, are made in DIR and removed.\n"
    "Keys of --json: verdict (\"ok\", \"warning\", \"failed\"), checks [{name, verdict, found, "
    "remedy}],\n"
    "machine, directory, drive: what probe/1 answered, and plugin.\n"
    "\n"
    "Examples:\n"
    "  millpond doctor /mnt/nvme/scratch\n"
    "  millpond doctor /mnt/nvme/scratch --params 7B --moments bf16   with the space that it "
    "needs\n"
    "  millpond doctor /mnt/nvme/scratch --no-drive                   without measuring\n"
    "\n"
    "Exit codes: 0 streaming will work; 1 could not look; 2 wrong command line; 3 it will not.";

void add_common(CLI::App* app, CommonArguments& a) {
  app->add_option("--plugin", a.plugin,
                  "libmillpond.so; else MILLPOND_PLUGIN, beside this program, the installed one")
      ->take_last()
      ->group("Output and plugin");
  app->add_option(
         "--json", a.json,
         "Also writes the figures to this file; -: to the standard output, the table goes to "
         "the error stream")
      ->take_last()
      ->group("Output and plugin");
  app->add_flag("--quiet", a.quiet, "No progress")->group("Output and plugin");
}

CLI::IsMember moments_names() {
  return CLI::IsMember({"fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"});
}

// Of "cuda" and "cuda:N".
std::optional<std::int32_t> cuda_index(std::string_view name) {
  if (name == "cuda") return 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  name.remove_prefix(5);
  std::int32_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size() || index < 0) return std::nullopt;
  return index;
}

void add_bench_work(CLI::App* app, BenchArguments& a) {
  add_quantity(app, "--params", a.params, parse_count, "Parameters", "100M");
  app->add_option("--moments", a.moments, "How both moments are stored")
      ->capture_default_str()
      ->check(moments_names());
  app->add_option("--parameters", a.parameters, "Their dtype; fp32 ones are their own mains")
      ->capture_default_str()
      ->check(CLI::IsMember({"bf16", "fp32"}));
  app->add_option("--gradients", a.gradients, "Their dtype")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16"}));
  add_quantity(app, "--shard", a.shard_elements, parse_count, "Elements of one parameter tensor",
               "50M");
  app->add_option("--device", a.device, "Where parameters and gradients are: cpu or cuda:N")
      ->capture_default_str()
      ->check(CLI::Validator(
          [](const std::string& name) {
            return name == "cpu" || cuda_index(name) ? "" : "not cpu, cuda or cuda:N";
          },
          "cpu or cuda:N"));
  app->add_option("--steps", a.steps, "Steps that are measured")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app->add_option("--warmup", a.warmup, "Steps before them: the first makes the moments")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  app->add_option("--serial-steps", a.serial_steps, "Steps of the serial store; 0: without it")
      ->capture_default_str()
      ->check(CLI::Range(0, 100));
  app->add_option("--ranks", a.ranks,
                  "Processes that share the parameters and step at the same time; without the "
                  "serial store")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app->add_option("--rank-timeout", a.rank_timeout_s,
                  "Seconds that ranks wait for one that neither comes nor ends")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 86400.0));
  add_quantity(app, "--ceiling-bytes", a.ceiling_bytes, parse_bytes,
               "The most that one measurement of the drive moves", "4GiB");
}

void add_bench_store(CLI::App* app, BenchArguments& a) {
  const char* group = "Store";
  app->add_option("--scratch", a.scratch, "Directory for the state's files; several share the load")
      ->required()
      ->group(group);
  add_quantity(app, "--tier", a.tier_bytes, parse_bytes,
               "Most pinned memory that the plugin (of each rank) may take", "auto")
      ->group(group);
  app->add_option("--engine", a.engine, "auto, io_uring or threads")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "io_uring", "threads"}))
      ->group(group);
  app->add_option("--direct", a.direct, "O_DIRECT: auto, true or false")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "true", "false"}))
      ->group(group);
  app->add_option("--queue-depth", a.queue_depth, "Transfers in flight; 0: derived")
      ->capture_default_str()
      ->group(group);
  add_quantity(app, "--tile", a.tile_elements, parse_count, "Elements that move together",
               "derived")
      ->group(group);
  add_quantity(app, "--bucket", a.bucket_elements, parse_count, "Elements of a file", "200M")
      ->group(group);
  app->add_option("--threads", a.threads, "Of the update; 0: all that the process may use")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024))
      ->group(group);
  add_plugin_options(app, a.options)->group(group);
  app->add_flag("--verbose", a.verbose, "The plugin's log, with a line for each step")
      ->group("Output and plugin");
}

void add_doctor(CLI::App* app, DoctorArguments& a) {
  app->add_option("DIR", a.directory, "A directory for the state's files")->required();
  add_quantity(app, "--params", a.params, parse_count, "Parameters whose state must fit", "none");
  app->add_option("--moments", a.moments, "How both moments are stored")
      ->capture_default_str()
      ->check(moments_names());
  add_quantity(app, "--drive-bytes", a.measured_bytes, parse_bytes, "Size of the drive's test file",
               "512MiB");
  app->add_flag_callback(
      "--no-drive", [&a] { a.measure = false; }, "Does not measure the drive");
}

}  // namespace

std::uint64_t state_bytes_of(const std::string& moments, bool has_main) {
  const std::uint64_t moment = moments == "fp32"                        ? 4
                               : moments == "bf16" || moments == "fp16" ? 2
                                                                        : 1;
  return (has_main ? 4 : 0) + 2 * moment;
}

std::string BenchArguments::options_json() const {
  nlohmann::json document = {{"scratch", scratch},
                             {"moments", moments},
                             {"io_engine", engine},
                             {"bucket_elements", bucket_elements},
                             {"log_level", verbose ? "info" : "warning"}};
  if (tier_bytes != 0) document["host_memory_bytes"] = tier_bytes;
  if (direct != "auto") document["direct"] = direct == "true";
  if (queue_depth != 0) document["queue_depth"] = queue_depth;
  if (tile_elements != 0) document["tile_elements"] = tile_elements;
  if (threads != 0) document["update_threads"] = threads;
  if (ranks > 1) {
    document["local_rank"] = rank;
    document["local_size"] = ranks;
  }
  set_plugin_options(document, options);
  return document.dump();
}

std::optional<std::int32_t> BenchArguments::cuda_device() const { return cuda_index(device); }

std::optional<Arguments> parse_arguments(int count, char** values, int* exit_code) {
  Arguments arguments;
  CLI::App app(kDescription, "millpond");
  app.footer(kFooter);
  app.set_version_flag("--version", MILLPOND_CLI_VERSION);
  app.require_subcommand(1);
  CLI::App* const bench =
      app.add_subcommand("bench", "Measures a step against this machine's own limits");
  bench->footer(kBenchFooter);
  add_bench_work(bench, arguments.bench);
  add_bench_store(bench, arguments.bench);
  add_common(bench, arguments.bench);
  CLI::App* const doctor = app.add_subcommand(
      "doctor", "Says whether streaming will work in a directory, and what to mend");
  doctor->footer(kDoctorFooter);
  add_doctor(doctor, arguments.doctor);
  add_common(doctor, arguments.doctor);
  add_files_commands(&app, arguments);
  try {
    const auto named = [&](const CLI::App* command) { return command->get_name() == values[1]; };
    if (count > 1 && values[1][0] != '-' &&
        std::ranges::none_of(app.get_subcommands([](CLI::App*) { return true; }), named)) {
      throw CLI::ValidationError("there is no command \"" + std::string(values[1]) +
                                 "\"; bench, doctor, inspect, verify, reshard, import, export and "
                                 "diff are the commands");
    }
    app.parse(count, values);
    const std::string wrong = wrong_plugin_option(arguments.bench.options);
    if (arguments.bench.params < arguments.bench.ranks) {
      throw CLI::ValidationError("--params is less than --ranks: each needs one at least");
    }
    if (!wrong.empty()) throw CLI::ValidationError(wrong);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? kExitOk : kExitUsage;
    return std::nullopt;
  }
  if (doctor->parsed()) arguments.command = Arguments::Command::kDoctor;
  return arguments;
}

}  // namespace millpond::cli
