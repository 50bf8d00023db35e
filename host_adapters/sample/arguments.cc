#include "host_adapters/sample/arguments.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "host_adapters/command_line/plugin_options.h"
#include "host_adapters/command_line/quantity_option.h"
#include "host_adapters/sample/gradients.h"
#include "millpond/error.hpp"

namespace millpond::sample {
namespace {

constexpr const char* kDescription =
    "Trains a byte-level language model on a text, with AdamW whose state is streamed through "
    "files "
    "by libmillpond.so, or held in memory, or both in lock step.";

constexpr const char* kFooter =
    "Examples:\n"
    "  millpond-sample --text book.txt --scratch /tmp/scratch --compare\n"
    "      trains resident and streamed in lock step; fails at the first differing byte\n"
    "  millpond-sample --text book.txt --scratch /tmp/scratch --save saves --save-every 100\n"
    "  millpond-sample --text book.txt --scratch /tmp/scratch --save saves --save-every 100 \\\n"
    "                  --resume saves\n"
    "      goes on where a killed run was saved: same data, same learning rates, same bytes\n"
    "  millpond-sample --text book.txt --scratch /tmp/scratch --ranks 4 --compare\n"
    "      four processes, each with a quarter of the optimizer; the bytes of one process\n"
    "  millpond-sample --text book.txt --scratch /mnt/nvme/scratch --ranks 2 --device cuda "
    "--compare\n"
    "      one process a GPU, over NCCL\n"
    "  millpond-sample --text book.txt --scratch /tmp/scratch --moments bf16 --tier 1MiB --tile "
    "16384\n"
    "\n"
    "Sizes take units: 64MiB, 1.5GB; counts: 32768, 1M. The digest at the end is XXH3-128 of the "
    "final bf16\n"
    "parameters in the order of --json's list. Exit codes: 0 done; 1 the plugin, the text or a "
    "file\n"
    "failed; 2 wrong command line; 3 --compare or --formats found a difference.";

void add_training(CLI::App& app, Arguments& a) {
  const char* group = "Training";
  app.add_option("--text", a.text, "The text to learn")
      ->required()
      ->check(CLI::ExistingFile)
      ->group(group);
  app.add_option("--steps", a.steps, "Steps in all, those before a resume included")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40))
      ->group(group);
  app.add_option("--stop-after", a.stop_after,
                 "Ends after this step, with the learning rates of a run of --steps; 0: does not")
      ->capture_default_str()
      ->group(group);
  app.add_option("--batch", a.batch, "Bytes predicted in a step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  app.add_option("--lr", a.hyper.lr, "Learning rate after the warm-up; ends at a twentieth of it")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app.add_option("--warmup", a.hyper.warmup, "Steps of linear warm-up, then half a cosine")
      ->capture_default_str()
      ->group(group);
  app.add_option("--beta1", a.hyper.beta1)
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.9999))
      ->group(group);
  app.add_option("--beta2", a.hyper.beta2)
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.999999))
      ->group(group);
  app.add_option("--eps", a.hyper.eps)
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app.add_option("--weight-decay", a.hyper.weight_decay,
                 "Of the matrices; biases and the embedding do not decay")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app.add_option("--clip", a.hyper.clip, "Largest global norm of the gradient; 0: no clipping")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app.add_option("--seed", a.seed, "Of the first parameters and of the order of data")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--threads", a.threads,
         "Of each rank; 0: the processors that it may use, divided among ranks; changes no bit")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024))
      ->group(group);
}

void add_model(CLI::App& app, Arguments& a) {
  const char* group = "Model";
  app.add_option("--context", a.shape.context, "Bytes that the model sees")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024))
      ->group(group);
  app.add_option("--embedding", a.shape.embedding, "Numbers a byte")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096))
      ->group(group);
  app.add_option("--hidden", a.shape.hidden, "Width of a hidden layer")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536))
      ->group(group);
  app.add_option("--layers", a.shape.layers, "Hidden layers")
      ->capture_default_str()
      ->check(CLI::Range(2, 64))
      ->group(group);
}

void add_streaming(CLI::App& app, Arguments& a) {
  const char* group = "Streaming";
  std::vector<CLI::Option*> modes;
  const auto mode = [&](const char* name, Mode value, const char* help) {
    modes.push_back(app.add_flag_callback(
        name, [&a, value] { a.mode = value; }, help));
    modes.back()->group(group);
    for (std::size_t i = 0; i + 1 < modes.size(); ++i) modes.back()->excludes(modes[i]);
  };
  mode("--streamed", Mode::kStreamed, "State in files (default)");
  mode("--resident", Mode::kResident, "State in memory");
  mode("--compare", Mode::kCompare,
       "Both in lock step on the same gradients: every byte must agree");
  mode("--formats", Mode::kFormats,
       "Streams with each format of moments in turn and tells how far each goes from fp32");
  app.add_option(
         "--compare-every", a.compare_every,
         "Steps from one comparison of mains and moments to the next; parameters are compared "
         "in every step")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40))
      ->group(group);
  app.add_option("--plugin", a.plugin,
                 "libmillpond.so; else MILLPOND_PLUGIN, beside this program, the installed one")
      ->group(group);
  app.add_option("--scratch", a.scratch,
                 "Existing directory for the state's live files; several share the load")
      ->group(group);
  app.add_option("--moments", a.moments, "How moments are stored")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"}))
      ->group(group);
  cli::add_quantity(&app, "--tier,--host-memory", a.host_memory_bytes, cli::parse_bytes,
                    "Most pinned memory that the plugin of each rank may take", "auto")
      ->group(group);
  cli::add_quantity(&app, "--tile,--tile-elements", a.tile_elements, cli::parse_count,
                    "Elements that move together", "derived")
      ->group(group);
  cli::add_quantity(&app, "--block-elements", a.block_elements, cli::parse_count,
                    "Elements of a checksum", "derived")
      ->group(group);
  cli::add_quantity(&app, "--bucket,--bucket-elements", a.bucket_elements, cli::parse_count,
                    "Elements of a file", "200M")
      ->group(group);
  app.add_option("--engine,--io-engine", a.io_engine, "auto, io_uring or threads")
      ->check(CLI::IsMember({"auto", "io_uring", "threads"}))
      ->group(group);
  app.add_option("--log-level", a.log_level, "Of the plugin; info has a line for each step")
      ->capture_default_str()
      ->check(CLI::IsMember({"error", "warning", "info", "debug"}))
      ->group(group);
  cli::add_plugin_options(&app, a.options)->group(group);
}

void add_saving(CLI::App& app, Arguments& a) {
  const char* group = "Saving and output";
  app.add_option(
         "--save", a.save,
         "Directory of saves: one folder each, the newest is kept. Saves of another run may "
         "not be in it")
      ->group(group);
  app.add_option("--save-every", a.save_every, "Steps from one save to the next; 0: the last only")
      ->capture_default_str()
      ->group(group);
  app.add_option("--resume", a.resume, "Goes on from the newest whole save in this directory")
      ->check(CLI::ExistingDirectory)
      ->group(group);
  app.add_flag("--weights-only", a.weights_only,
               "With --resume: parameters only; mains are widened, moments start anew")
      ->group(group);
  app.add_flag("--new-hyperparameters", a.new_hyperparameters,
               "With --resume: learning rate, warm-up, betas, eps, decay and clipping may differ "
               "from the saved run's; else that is refused")
      ->group(group);
  app.add_option("--evaluations", a.evaluations, "How often the bits per byte are measured")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40))
      ->group(group);
  app.add_option("--evaluation-bytes", a.evaluation_bytes,
                 "Bytes, evenly spread over the text, on which model and bigram are measured")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40))
      ->group(group);
  app.add_option(
         "--json", a.json,
         "Also writes the figures to this file; -: to the standard output, the table goes to "
         "the error stream")
      ->group(group);
  app.add_flag("--quiet", a.quiet, "No progress")->group(group);
}

// Empty where `name` is "cpu", "cuda" or "cuda:N".
std::string unfit_device(const std::string& name) {
  const std::string prefix = "cuda:";
  if (name == "cpu" || name == "cuda") return {};
  if (name.size() > prefix.size() && name.size() < prefix.size() + 4 &&
      name.compare(0, prefix.size(), prefix) == 0 &&
      name.find_first_not_of("0123456789", prefix.size()) == std::string::npos) {
    return {};
  }
  return "give cpu, cuda or cuda:N, not " + name;
}

void add_ranks(CLI::App& app, Arguments& a) {
  const char* group = "Devices and ranks";
  app.add_option("--device", a.device,
                 "cpu; cuda: a GPU for each rank (with --collective shared several ranks may have "
                 "one); cuda:N: this one for all ranks")
      ->capture_default_str()
      ->check(unfit_device)
      ->group(group);
  app.add_option("--collective", a.collective,
                 "How ranks exchange bytes: nccl (CUDA only), shared (memory); auto: nccl with "
                 "--device cuda where it was built in, else shared")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "shared", "nccl"}))
      ->group(group);
  app.add_option("--ranks", a.ranks,
                 "Processes on this machine that share the batch and the optimizer's state")
      ->capture_default_str()
      ->check(CLI::Range(1, 64))
      ->group(group);
  app.add_option(
         "--micro-batches", a.micro_batches,
         "Parts of a batch whose gradients are summed as a balanced tree: the same bits for "
         "every number of ranks; --ranks times 1, 2, 4, ...")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024))
      ->group(group);
  app.add_option("--rank-timeout", a.rank_timeout_s,
                 "Seconds that ranks wait for one that neither comes nor ends")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 86400.0))
      ->group(group);
}

// What no single option can check.
std::string contradiction(const Arguments& a) {
  if (a.mode != Mode::kResident && a.scratch.empty()) return "--scratch is required";
  if (a.mode == Mode::kCompare && a.moments != "fp32") {
    return "--compare needs --moments fp32: other formats round the moments";
  }
  if ((a.mode == Mode::kCompare || a.mode == Mode::kFormats) &&
      (!a.save.empty() || !a.resume.empty())) {
    return "--compare and --formats do not save or resume";
  }
  if (a.ranks > 1 && a.mode == Mode::kFormats) return "--formats runs on one rank";
  if (a.ranks > 1 && a.mode == Mode::kResident && (!a.save.empty() || !a.resume.empty())) {
    return "--resident saves and resumes on one rank only: a commit of all ranks is the plugin's";
  }
  if (a.device != "cpu" && a.mode == Mode::kResident && (!a.save.empty() || !a.resume.empty())) {
    return "--resident saves and resumes on the CPU only";
  }
  if (a.device == "cpu" && a.collective == "nccl") return "--collective nccl needs --device cuda";
  if (a.micro_batches > a.batch) return "--micro-batches is more than --batch has bytes";
  std::string unfit = unfit_micro_batches(a.micro_batches, a.ranks);
  if (!unfit.empty()) return unfit;
  if (a.save_every != 0 && a.save.empty()) return "--save-every needs --save";
  if (a.weights_only && a.resume.empty()) return "--weights-only needs --resume";
  if (a.new_hyperparameters && a.resume.empty()) return "--new-hyperparameters needs --resume";
  return cli::wrong_plugin_option(a.options);
}

}  // namespace

std::string Arguments::options_json(std::uint32_t rank) const {
  nlohmann::json document = {{"scratch", scratch}, {"moments", moments}, {"log_level", log_level}};
  if (host_memory_bytes != 0) document["host_memory_bytes"] = host_memory_bytes;
  if (tile_elements != 0) document["tile_elements"] = tile_elements;
  if (block_elements != 0) document["block_elements"] = block_elements;
  if (bucket_elements != 0) document["bucket_elements"] = bucket_elements;
  if (!io_engine.empty()) document["io_engine"] = io_engine;
  if (threads != 0) document["update_threads"] = threads;
  if (ranks > 1) {
    document["local_rank"] = rank;
    document["local_size"] = ranks;
  }
  cli::set_plugin_options(document, options);
  return document.dump();
}

std::optional<Arguments> parse_arguments(int count, char** values, int* exit_code) {
  Arguments arguments;
  CLI::App app(kDescription, "millpond-sample");
  app.footer(kFooter);
  app.set_version_flag("--version", MILLPOND_SAMPLE_VERSION);
  add_training(app, arguments);
  add_model(app, arguments);
  add_streaming(app, arguments);
  add_ranks(app, arguments);
  add_saving(app, arguments);
  try {
    app.parse(count, values);
    const std::string wrong = contradiction(arguments);
    if (!wrong.empty()) throw CLI::ValidationError(wrong);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? kExitOk : kExitUsage;
    return std::nullopt;
  }
  return arguments;
}

}  // namespace millpond::sample
