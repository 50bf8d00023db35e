#include "host_adapters/sample/streamed_adam.h"

#include <array>
#include <chrono>
#include <utility>

namespace millpond::sample {
namespace {

client::Callbacks callbacks_with(StreamedAdam::LogLine log) {
  client::Callbacks callbacks;
  callbacks.log = std::move(log);
  return callbacks;
}

}  // namespace

StreamedAdam::StreamedAdam(client::Plugin plugin, Model& model, const Hyperparameters& hyper,
                           const std::string& options_json, LogLine log)
    : plugin_(std::move(plugin)),
      model_(model),
      hyper_(hyper),
      runtime_(plugin_.create_runtime(options_json, callbacks_with(std::move(log)))),
      store_(runtime_.create_store("rank00000/opt0_0")),
      plan_(store_.bind(binding())) {}

client::Binding StreamedAdam::binding() const {
  client::Binding binding({.framework = "millpond-sample",
                           .framework_version = MILLPOND_SAMPLE_VERSION,
                           .adapter = "millpond-sample",
                           .adapter_version = MILLPOND_SAMPLE_VERSION,
                           .optimizer_class = "AdamW",
                           .arithmetic = "torch_cpu_fused/1"});
  binding.feature("grad.clip_norm", hyper_.clip > 0.0, "--clip");
  binding.other_features_inactive(plugin_.minor());
  binding.axis("dp", 0, 1);
  const std::uint64_t decay = binding.add_group("decay");
  const std::uint64_t no_decay = binding.add_group("no_decay");
  for (Parameter& parameter : model_.parameters()) {
    binding.add({.key = parameter.name,
                 .shape = parameter.shape,
                 .group = parameter.decays ? decay : no_decay,
                 .model = client::cpu_tensor(parameter.value.data(), parameter.numel(),
                                             MILLPOND_DTYPE_BF16),
                 .grad = client::cpu_tensor(parameter.grad.data(), parameter.numel(),
                                            MILLPOND_DTYPE_FP32)});
  }
  return binding;
}

StepCost StreamedAdam::step(const StepInput& input) {
  const auto start = std::chrono::steady_clock::now();
  millpond_group_step decay = {};
  decay.lr = input.lr;
  decay.beta1 = hyper_.beta1;
  decay.beta2 = hyper_.beta2;
  decay.eps = hyper_.eps;
  decay.weight_decay = hyper_.weight_decay;
  decay.decoupled = 1;
  millpond_group_step no_decay = decay;
  no_decay.id = 1;
  no_decay.weight_decay = 0.0;
  const std::array groups = {decay, no_decay};
  store_.step({.groups = groups, .grad_scale = input.grad_scale, .found_inf = input.found_inf});
  runtime_.agree();
  StepCost cost;
  cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const millpond_step_figures figures = store_.last_step();
  cost.figures = figures;
  cost.bytes_read = figures.bytes_read;
  cost.bytes_written = figures.bytes_written;
  return cost;
}

void StreamedAdam::read(std::size_t parameter, Part part, std::size_t begin,
                        std::span<float> values) {
  const client::Segment segment = part == Part::kMain     ? client::Segment::kMain
                                  : part == Part::kExpAvg ? client::Segment::kExpAvg
                                                          : client::Segment::kExpAvgSq;
  store_.read_state(parameter, segment, begin, values);
}

std::uint64_t StreamedAdam::resident_bytes() { return runtime_.figures().host_bytes; }

std::string StreamedAdam::description() { return plugin_.description(); }

void StreamedAdam::save(const std::filesystem::path& path) { store_.save(path); }
void StreamedAdam::load(const std::filesystem::path& path) { store_.load(path); }

}  // namespace millpond::sample
