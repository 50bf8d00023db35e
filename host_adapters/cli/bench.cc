#include "host_adapters/cli/bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "host_adapters/cli/bench_cuda.h"
#include "host_adapters/cli/probe.h"
#include "host_adapters/cli/resident_memory.h"
#include "host_adapters/cli/tensors.h"
#include "host_adapters/command_line/quantity.h"
#include "millpond/client/plugin.h"
#include "millpond/error.hpp"

namespace millpond::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kLeastMoved = 256ull << 20;  // by a measurement of the drive
// Of the update's measurement: more than a processor's cache, little beside the tensors.
constexpr std::uint64_t kUpdateElements = 16ull << 20;
constexpr std::uint64_t kCudaUpdateElements = 128ull << 20;  // milliseconds of a device
constexpr std::uint32_t kSharedRounds = 40;                  // of a bus beside other ranks

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Bench {
 public:
  Bench(const BenchArguments& arguments, Progress& progress, const Company& company)
      : arguments_(arguments),
        progress_(progress),
        company_(company),
        plugin_(client::Plugin::open(arguments.plugin)),
        runtime_(plugin_.create_runtime(arguments.options_json(), callbacks())) {
    result_.plugin = plugin_.description();
    if (const auto index = arguments_.cuda_device()) {
      device_.emplace(*index);
      result_.cuda.emplace().device = device_->name();
    }
  }

  BenchResult run() {
    check_directories();
    const bool has_main = arguments_.parameters != "fp32";
    result_.state_bytes = arguments_.params * state_bytes_of(arguments_.moments, has_main);
    result_.main_bytes = has_main ? arguments_.params * sizeof(float) : 0;
    check_memory();
    company_.meet("look at the memory");
    progress_.begin("parameters and gradients", 1);
    tensors_ = std::make_unique<Tensors>(
        arguments_.params, arguments_.shard_elements, dtype_of(arguments_.parameters),
        dtype_of(arguments_.gradients), device_ ? &*device_ : nullptr);
    if (arguments_.serial_steps != 0) run_serial();
    company_.first_alone("measure the drive", [&] { measure_directions(); });
    if (device_) company_.in_turn("measure the device", [&] { measure_device(); });
    run_steps();
    return std::move(result_);
  }

 private:
  client::Callbacks callbacks() {
    client::Callbacks callbacks;
    callbacks.log = [this](std::uint32_t level, std::string_view line) {
      const char* const word = level == MILLPOND_LOG_ERROR     ? "error: "
                               : level == MILLPOND_LOG_WARNING ? "warning: "
                                                               : "";
      progress_.line(std::string(word) + std::string(line));
    };
    callbacks.progress = [this](std::string_view what, std::uint64_t done, std::uint64_t total) {
      progress_.part(what, done, total);
      return true;
    };
    return callbacks;
  }

  // In doctor's words, before anything is made.
  void check_directories() {
    for (const std::string& directory : arguments_.scratch) {
      const Json facts = ask(plugin_.probe().directory, nullptr, {{"directory", directory}});
      for (const Json& check : facts.at("checks")) {
        if (check.at("verdict") != "failed") continue;
        throw Error(MILLPOND_E_IO, "scratch directory", check.at("found").get<std::string>())
            .path(directory)
            .field("--scratch")
            .remedy(check.at("remedy").get<std::string>());
      }
    }
  }

  // What cannot fit is said before minutes are spent, and before the kernel kills somebody.
  void check_memory() {
    const Json machine = ask(plugin_.probe().machine, nullptr, Json::object());
    const std::uint64_t available = machine.at("available_bytes").get<std::uint64_t>();
    if (available == 0) return;
    const std::uint64_t element =
        item_bytes(dtype_of(arguments_.parameters)) + item_bytes(dtype_of(arguments_.gradients));
    const std::uint64_t held = device_ ? 0 : arguments_.params * element;
    const std::uint64_t bucket = std::min(arguments_.bucket_elements, arguments_.params);
    const std::uint64_t serial = arguments_.serial_steps == 0 || device_
                                     ? 0
                                     : bucket * result_.state_bytes / arguments_.params;
    const std::uint64_t tier = std::min(arguments_.tier_bytes, result_.state_bytes);
    const std::uint64_t needed = (held + std::max(serial, tier)) * company_.size();
    if (needed <= available) return;
    throw Error(MILLPOND_E_MEMORY, "bench", "the memory that is available is too small for it")
        .want(needed, available)
        .remedy("Ask for fewer --params, a smaller --tier, --gradients bf16 or --serial-steps 0");
  }

  void run_serial() {
    if (device_) {
      progress_.line("the serial store keeps parameters in host memory: left out");
      return;
    }
    if (arguments_.moments != "fp32" && arguments_.moments != "bf16") {
      progress_.line("the serial store keeps moments in fp32 or bf16: left out");
      return;
    }
    SerialRequest request;
    request.directories = arguments_.scratch;
    request.bucket_elements = arguments_.bucket_elements;
    request.bf16_moments = arguments_.moments == "bf16";
    request.threads = arguments_.threads;
    const auto beat = [this](std::uint64_t done, std::uint64_t total) {
      progress_.part("bucket", done, total);
    };
    progress_.begin("serial store", 1 + arguments_.serial_steps);
    SerialStore store(request, *tensors_, beat);
    for (std::uint32_t i = 0; i < arguments_.serial_steps; ++i) {
      progress_.at(1 + i);
      result_.serial.push_back(store.step(beat));
    }
  }

  // Little is measured badly, and much takes long.
  std::uint64_t measured(std::uint64_t bytes) const {
    const std::uint64_t most = arguments_.ceiling_bytes;
    return std::clamp(bytes, std::min(kLeastMoved, most), most);
  }

  Json measure_drive(std::vector<double> shares, std::uint64_t move_bytes) {
    const Json answer = ask(plugin_.probe().ceilings, runtime_.handle(),
                            {{"measure", Json::array({"drive"})},
                             {"directory", arguments_.scratch[0]},
                             {"file_bytes", measured(result_.state_bytes)},
                             {"file", "kept"},
                             {"move_bytes", move_bytes},
                             {"read_shares", std::move(shares)}});
    return answer.at("drive").at("rates");
  }

  void measure_directions() {
    progress_.begin("drive", 1);
    const Json rates = measure_drive({1.0, 0.0}, measured(result_.state_bytes));
    result_.raw_read_bytes_per_s = rates.at(0).at("bytes_per_s").get<double>();
    result_.raw_write_bytes_per_s = rates.at(1).at("bytes_per_s").get<double>();
  }

  CudaProbe cuda_probe() const { return {plugin_, runtime_.handle(), device_->index()}; }

  void measure_device() {
    progress_.begin("bus and pinning", 1);
    CudaFigures& figures = *result_.cuda;
    figures.parameter_bytes = tensors_->model_bytes();
    figures.gradient_bytes = tensors_->grad_bytes();
    cuda_probe().measure_limits(arguments_, &figures);
    const std::uint64_t most =
        arguments_.tier_bytes != 0 ? arguments_.tier_bytes : result_.state_bytes;
    pinned_bytes_ = std::min(most, result_.state_bytes);
    if (arguments_.tier_bytes == 0) {
      const Json machine = ask(plugin_.probe().machine, nullptr, Json::object());
      pinned_bytes_ =
          std::min(pinned_bytes_, machine.at("available_bytes").get<std::uint64_t>() / 2);
    }
    cuda_probe().measure_start(pinned_bytes_, arguments_.threads, &figures);
  }

  void bind(client::Store& store) {
    const auto begin = Clock::now();
    result_.plan = store.bind(binding());
    const double seconds = seconds_since(begin);
    result_.runtime_figures = runtime_.figures();
    if (!device_) return;
    CudaFigures& figures = *result_.cuda;
    figures.bind_s = seconds;
    figures.staging_bytes = result_.runtime_figures.device_bytes;
    // The plugin may have taken another size than was measured.
    const double scale = static_cast<double>(result_.runtime_figures.host_bytes) /
                         static_cast<double>(pinned_bytes_);
    figures.touch_s *= scale;
    figures.register_s *= scale;
  }

  void warm_up(client::Store& store) {
    for (std::uint32_t i = 0; i < arguments_.warmup; ++i) {
      step(store, nullptr);
      progress_.at(i + 1);
    }
  }

  // The peak of device memory while `work` runs, where there is a device.
  template <class Work>
  void watched(std::uint64_t CudaFigures::*peak, Work work) {
    std::optional<DeviceMemoryWatch> watch;
    if (device_) watch.emplace(*device_);
    work();
    if (device_) (*result_.cuda).*peak = watch->peak_bytes();
  }

  void run_steps() {
    result_.rss_host_bytes = resident_bytes();
    can_restart_peak_ = restart_peak();
    progress_.begin("bind", 1);
    client::Store store = runtime_.create_store(store_name());
    // Each takes its share of the memory that is available now.
    company_.meet("bind");
    watched(&CudaFigures::bind_peak_bytes, [&] { bind(store); });
    note_peak();
    progress_.begin("warm-up", arguments_.warmup);
    watched(&CudaFigures::step_peak_bytes, [&] { warm_up(store); });
    const millpond_step_figures last = store.last_step();
    progress_.begin("steps", arguments_.steps);
    double before = measure_mix(last);
    for (std::uint32_t i = 0; i < arguments_.steps; ++i) {
      Pair pair;
      measure_ceilings(&pair);
      step(store, &pair);
      const double after = measure_mix(last);
      pair.raw_mixed_bytes_per_s = (before + after) / 2;
      before = after;
      result_.pairs.push_back(pair);
      progress_.at(i + 1);
    }
    result_.plan_figures = store.plan();
    result_.runtime_figures = runtime_.figures();
    store.close();
  }

  // The drive's rate for such a step's reads and writes; 0 where there are none.
  double measure_mix(const millpond_step_figures& mix) {
    const std::uint64_t moved = mix.bytes_read + mix.bytes_written;
    double rate = 0;
    company_.first_alone("measure the drive", [&] {
      if (moved == 0) return;
      const double share = static_cast<double>(mix.bytes_read) / static_cast<double>(moved);
      const Json rates = measure_drive({share}, measured(moved * company_.size()));
      rate = rates.at(0).at("bytes_per_s").get<double>();
    });
    return rate;
  }

  void measure_ceilings(Pair* pair) {
    company_.meet("measure the update");
    const char* const measured = device_ ? "cuda_update" : "update";
    const std::uint64_t most = device_ ? kCudaUpdateElements : kUpdateElements;
    const Json answer =
        ask(plugin_.probe().ceilings, runtime_.handle(),
            {{"measure", Json::array({measured})},
             {"elements", std::min(most, arguments_.params)},
             {"moments", arguments_.moments},
             {"parameters", arguments_.parameters},
             {"gradients", arguments_.gradients},
             {"cuda_device", device_ ? device_->index() : 0},
             {"threads",
              company_.size() == 1 ? arguments_.threads : runtime_.figures().update_threads}});
    const Json& update = answer.at(measured);
    pair->update_bytes_per_s = update.at("update_bytes_per_s").get<double>();
    pair->update_ceiling_bytes_per_s = update.at("update_ceiling_bytes_per_s").get<double>();
    result_.update_bytes = static_cast<std::uint64_t>(update.at("bytes").get<double>() /
                                                      update.at("elements").get<double>() *
                                                      static_cast<double>(arguments_.params));
    company_.meet("measure the bus");
    if (!device_) return;
    // At the same time on all ranks: long enough that they overlap, whoever begins later.
    pair->bus_bytes_per_s = cuda_probe().bus_bytes_per_s(company_.size() == 1 ? 1 : kSharedRounds);
  }

  void step(client::Store& store, Pair* pair) {
    millpond_group_step group = {};
    group.lr = 1e-3;
    group.beta1 = 0.9;
    group.beta2 = 0.95;
    group.eps = 1e-8;
    group.weight_decay = 0.1;
    group.decoupled = 1;
    const std::array groups = {group};
    if (can_restart_peak_) restart_peak();
    company_.meet("step");
    const auto begin = Clock::now();
    store.step({.groups = groups, .stream = stream()});
    const double returned = seconds_since(begin);
    if (device_) device_->synchronize();
    const millpond_step_figures figures = store.last_step();
    const bool on_the_way = !device_ || figures.bytes_written != 0;
    // Returns when the last write is through.
    if (on_the_way) runtime_.suspend();
    const double settled = seconds_since(begin);
    if (on_the_way) runtime_.resume();
    note_peak();
    if (pair == nullptr) return;
    pair->step_s = returned;
    pair->settled_s = settled;
    pair->figures = figures;
  }

  millpond_stream stream() const {
    return device_ ? device_->stream() : millpond_stream{MILLPOND_DEVICE_CPU, 0, 0};
  }

  std::string store_name() const {
    char name[40];
    std::snprintf(name, sizeof(name), "rank%05u/opt0_0", company_.rank());
    return name;
  }

  void note_peak() {
    if (!can_restart_peak_) return;
    result_.rss_peak_bytes = std::max(result_.rss_peak_bytes, peak_resident_bytes());
  }

  client::Binding binding() const {
    client::Binding binding({.framework = "millpond-bench",
                             .framework_version = MILLPOND_CLI_VERSION,
                             .adapter = "millpond-bench",
                             .adapter_version = MILLPOND_CLI_VERSION,
                             .optimizer_class = "AdamW",
                             .arithmetic = device_ ? "torch_cuda_fused/2" : "torch_cpu_fused/1"});
    binding.other_features_inactive(plugin_.minor());
    binding.stream(stream());
    const std::uint64_t group = binding.add_group("all");
    for (const Tensors::Shard& shard : tensors_->shards()) {
      binding.add({.key = shard.key,
                   .shape = {shard.numel},
                   .group = group,
                   .model = tensors_->model(shard),
                   .grad = tensors_->grad(shard)});
    }
    return binding;
  }

  const BenchArguments& arguments_;
  Progress& progress_;
  Company company_;
  BenchResult result_;
  client::Plugin plugin_;
  std::optional<CudaDevice> device_;
  std::uint64_t pinned_bytes_ = 0;    // that the start's parts were measured with
  std::unique_ptr<Tensors> tensors_;  // outlives the runtime, which writes parameters
  client::Runtime runtime_;
  bool can_restart_peak_ = false;
};

}  // namespace

BenchResult run_bench(const BenchArguments& arguments, Progress& progress, const Company& company) {
  return Bench(arguments, progress, company).run();
}

}  // namespace millpond::cli
