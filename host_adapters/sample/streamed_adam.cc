#include "host_adapters/sample/streamed_adam.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>

#include "millpond/handshake.pb.h"

namespace millpond::sample {
namespace {

// What the plugin asks of its host: to print a line, and to exchange bytes between ranks.
client::Callbacks callbacks_with(StreamedAdam::LogLine log, Collective& ranks) {
  client::Callbacks callbacks;
  callbacks.log = std::move(log);
  callbacks.allgather = [&ranks](millpond_group, std::span<const std::byte> send,
                                 std::span<std::byte> receive) {
    ranks.all_gather(send.data(), receive.data(), send.size(), client::kCpuStream);
  };
  return callbacks;
}

std::string store_name(std::uint32_t rank, std::size_t section) {
  char name[40];
  std::snprintf(name, sizeof(name), "rank%05u/opt0_%zu", rank, section);
  return name;
}

constexpr std::array kStages = {"reading files", "upload", "update", "download", "writing files"};

}  // namespace

StreamedAdam::StreamedAdam(client::Plugin plugin, Model& model, Collective& ranks,
                           const Hyperparameters& hyper, const std::string& options_json,
                           LogLine log)
    : Optimizer(model.layout().pieces(ranks.rank())),
      plugin_(std::move(plugin)),
      model_(model),
      ranks_(ranks),
      hyper_(hyper),
      group_{0, ranks.rank(), ranks.size()},
      runtime_(plugin_.create_runtime(options_json, callbacks_with(std::move(log), ranks))) {
  // Ranks bind at the same time: each takes its share of the memory that is available then.
  std::vector<std::byte> here(ranks.size());
  ranks.all_gather(&here[ranks.rank()], here.data(), 1, client::kCpuStream);
  std::size_t first = 0;
  for (std::size_t section = 0; section < Layout::kSections; ++section) {
    const std::vector<Piece> owned = model.layout().pieces(group_.rank, section);
    if (owned.empty()) continue;
    stores_.push_back(runtime_.create_store(store_name(group_.rank, section)));
    stores_.back().bind(binding(owned));
    first_piece_.push_back(first);
    first += owned.size();
  }
}

client::Binding StreamedAdam::binding(const std::vector<Piece>& owned) const {
  const millpond_stream stream = model_.device().stream();
  const bool cuda = stream.device_type == MILLPOND_DEVICE_CUDA;
  client::Binding binding({.framework = "millpond-sample",
                           .framework_version = MILLPOND_SAMPLE_VERSION,
                           .adapter = "millpond-sample",
                           .adapter_version = MILLPOND_SAMPLE_VERSION,
                           .optimizer_class = "AdamW",
                           .arithmetic = cuda ? "torch_cuda_fused/2" : "torch_cpu_fused/1"});
  binding.feature("grad.clip_norm", hyper_.clip > 0.0, "--clip");
  binding.feature("grad.accumulation", true, "--micro-batches");
  binding.feature("parallel.distributed_optimizer", group_.size > 1, "--ranks");
  binding.other_features_inactive(plugin_.minor());
  binding.axis("dp", group_.rank, group_.size);
  binding.stream(stream);
  const std::uint64_t decay = binding.add_group("decay");
  const std::uint64_t no_decay = binding.add_group("no_decay");
  for (const Piece& piece : owned) {
    const Parameter& parameter = model_.layout().parameters()[piece.parameter];
    v1::Shard shard;
    shard.set_id(binding.pointers().size());
    shard.set_key(parameter.name);
    for (const std::uint64_t extent : parameter.shape) {
      shard.add_global_shape(extent);
      shard.add_box_offset(0);
      shard.add_box_shape(extent);
    }
    shard.set_flat_begin(piece.begin);
    shard.set_flat_end(piece.end);
    shard.set_group_id(parameter.decays ? decay : no_decay);
    shard.set_kind(v1::KIND_MAIN_AND_MOMENTS);
    shard.set_model_dtype(MILLPOND_DTYPE_BF16);
    shard.set_grad_dtype(MILLPOND_DTYPE_FP32);
    shard.set_model_storage(v1::STORAGE_DENSE);
    shard.set_grad_storage(v1::STORAGE_DENSE);
    shard.set_device_type(stream.device_type);
    shard.set_device_id(stream.device_id);
    const auto tensor = [&](void* data, millpond_dtype dtype) {
      return millpond_tensor{data,  0, piece.numel(), stream.device_type, stream.device_id,
                             dtype, 0};
    };
    binding.add_shard(shard, tensor(model_.value(piece), MILLPOND_DTYPE_BF16),
                      tensor(model_.grad(piece), MILLPOND_DTYPE_FP32));
  }
  return binding;
}

void StreamedAdam::on_all_ranks(const std::function<void(client::Store&)>& work,
                                const std::function<void()>& agreement) {
  std::exception_ptr failure;
  try {
    for (client::Store& store : stores_) work(store);
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    agreement();
  } catch (...) {
    if (!failure) throw;
  }
  if (failure) std::rethrow_exception(failure);
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
  const client::StepRequest request = {.groups = groups,
                                       .grad_scale = input.grad_scale,
                                       .found_inf = input.found_inf,
                                       .stream = model_.device().stream()};
  on_all_ranks([&](client::Store& store) { store.step(request); }, [&] { runtime_.agree(group_); });
  ranks_.finish(request.stream);
  StepCost cost;
  cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  double longest = -1.0;
  for (const client::Store& store : stores_) {
    const millpond_step_figures figures = store.last_step();
    cost.bytes_read += figures.bytes_read;
    cost.bytes_written += figures.bytes_written;
    if (figures.seconds <= longest) continue;
    longest = figures.seconds;
    cost.figures = figures;
    cost.bound_by = kStages.at(figures.bound_by);
  }
  return cost;
}

void StreamedAdam::read(std::size_t piece, Part part, std::size_t begin, std::span<float> values) {
  const client::Segment segment = part == Part::kMain     ? client::Segment::kMain
                                  : part == Part::kExpAvg ? client::Segment::kExpAvg
                                                          : client::Segment::kExpAvgSq;
  const auto after = std::upper_bound(first_piece_.begin(), first_piece_.end(), piece);
  const auto store = static_cast<std::size_t>(after - first_piece_.begin()) - 1;
  stores_[store].read_state(piece - first_piece_[store], segment, begin, values);
}

std::uint64_t StreamedAdam::resident_bytes() {
  const millpond_runtime_figures figures = runtime_.figures();
  return figures.host_bytes + figures.device_bytes;
}

std::string StreamedAdam::description() { return plugin_.description(); }

void StreamedAdam::save(const std::filesystem::path& path) {
  const std::string id = runtime_.save_begin(path, group_);
  on_all_ranks(
      [&](client::Store& store) {
        store.save_to({path, id, 0, client::kCpuStream});
      },
      [&] { runtime_.save_commit(id, group_); });
}

void StreamedAdam::load(const std::filesystem::path& path) {
  const millpond_stream stream = model_.device().stream();
  on_all_ranks(
      [&](client::Store& store) {
        store.load_from({path, {}, MILLPOND_IO_STAGE, stream});
      },
      [&] { runtime_.load_commit(group_); });
}

}  // namespace millpond::sample
