#include "host_adapters/sample/resident_adam.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "host_adapters/sample/dense.h"
#include "host_adapters/sample/durable_file.h"
#include "millpond/error.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace millpond::sample {
namespace {

constexpr std::uint64_t kMagic = 0x314d414441444e50;  // "PNDADAM1"

constexpr std::size_t kAdamTask = 32768;  // elements; a multiple of torch's vector

struct Slice {
  std::size_t piece, begin, end;
};

AdamScalars scalars_of(const Hyperparameters& hyper, const StepInput& input, bool decays,
                       std::uint64_t step) {
  const auto t = static_cast<double>(step);
  const double correction1 = 1.0 - std::pow(hyper.beta1, t);
  const double correction2 = 1.0 - std::pow(hyper.beta2, t);
  AdamScalars scalars;
  scalars.decay = static_cast<float>(1.0 - input.lr * (decays ? hyper.weight_decay : 0.0));
  scalars.weight = static_cast<float>(1.0 - hyper.beta1);
  scalars.beta2 = static_cast<float>(hyper.beta2);
  scalars.one_minus_beta2 = static_cast<float>(1.0 - hyper.beta2);
  scalars.step_size = static_cast<float>(-input.lr / correction1);
  scalars.bias2_sqrt = static_cast<float>(std::sqrt(correction2));
  scalars.eps = static_cast<float>(hyper.eps);
  scalars.grad_scale = input.grad_scale;
  return scalars;
}

}  // namespace

ResidentAdam::ResidentAdam(Model& model, std::uint32_t rank, const Hyperparameters& hyper,
                           CpuDevice& device)
    : Optimizer(model.layout().pieces(rank)),
      model_(model),
      hyper_(hyper),
      workers_(device.workers()),
      loops_(best_dense_loops()) {
  for (const Piece& piece : pieces()) {
    State state;
    state.main.resize(piece.numel());
    std::transform(model.value(piece), model.value(piece) + piece.numel(), state.main.begin(),
                   [](Bfloat value) { return widen(value); });
    state.exp_avg.resize(piece.numel());
    state.exp_avg_sq.resize(piece.numel());
    states_.push_back(std::move(state));
  }
}

StepCost ResidentAdam::step(const StepInput& input) {
  const auto start = std::chrono::steady_clock::now();
  if (!input.found_inf) {
    ++step_;
    std::vector<Slice> slices;
    for (std::size_t p = 0; p < states_.size(); ++p) {
      const std::size_t numel = states_[p].main.size();
      for (std::size_t begin = 0; begin < numel; begin += kAdamTask) {
        slices.push_back({p, begin, std::min(numel, begin + kAdamTask)});
      }
    }
    const AdamScalars plain = scalars_of(hyper_, input, false, step_);
    const AdamScalars decaying = scalars_of(hyper_, input, true, step_);
    workers_.run(slices.size(), [&](std::size_t task) {
      const Slice& slice = slices[task];
      const Piece& piece = pieces()[slice.piece];
      State& state = states_[slice.piece];
      const bool decays = model_.layout().parameters()[piece.parameter].decays;
      loops_.adam(decays ? decaying : plain, piece.numel(), slice.begin, slice.end,
                  model_.grad(piece), state.main.data(), state.exp_avg.data(),
                  state.exp_avg_sq.data(), model_.value(piece));
    });
  }
  StepCost cost;
  cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return cost;
}

void ResidentAdam::read(std::size_t piece, Part part, std::size_t begin, std::span<float> values) {
  const State& state = states_.at(piece);
  const std::vector<float>& from = part == Part::kMain     ? state.main
                                   : part == Part::kExpAvg ? state.exp_avg
                                                           : state.exp_avg_sq;
  std::copy_n(from.data() + begin, values.size(), values.data());
}

std::uint64_t ResidentAdam::resident_bytes() {
  std::uint64_t elements = 0;
  for (const Piece& piece : pieces()) elements += piece.numel();
  return 3 * sizeof(float) * elements;
}

std::string ResidentAdam::description() {
  return std::string("resident Adam, fp32 state in memory (") + loops_.name + " loops)";
}

// A file is: magic, step, number of pieces, for each its elements and three arrays; XXH3-64 of
// all that at the end.
void ResidentAdam::save(const std::filesystem::path& path) {
  std::string bytes;
  const auto put = [&bytes](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  const auto put_number = [&put](std::uint64_t number) { put(&number, sizeof(number)); };
  bytes.reserve(resident_bytes() + 4096);
  put_number(kMagic);
  put_number(step_);
  put_number(states_.size());
  for (const State& state : states_) {
    put_number(state.main.size());
    for (const auto* values : {&state.main, &state.exp_avg, &state.exp_avg_sq}) {
      put(values->data(), values->size() * sizeof(float));
    }
  }
  put_number(XXH3_64bits(bytes.data(), bytes.size()));
  write_durably(path, bytes);
}

void ResidentAdam::load(const std::filesystem::path& path) {
  const std::string bytes = read_whole(path);
  std::size_t wanted = 4 * sizeof(std::uint64_t);
  for (const State& state : states_) wanted += sizeof(std::uint64_t) + state.main.size() * 12;
  if (bytes.size() != wanted) {
    throw Error(MILLPOND_E_MISMATCH, "load", "the file is not as long as this model's state")
        .path(path.string())
        .want(wanted, bytes.size());
  }
  std::size_t at = 0;
  const auto take = [&](void* to, std::size_t size) {
    std::memcpy(to, bytes.data() + at, size);
    at += size;
  };
  const auto expect = [&](std::uint64_t number, const char* what) {
    std::uint64_t found = 0;
    take(&found, sizeof(found));
    if (found == number) return;
    throw Error(MILLPOND_E_CORRUPT, "load", what)
        .path(path.string())
        .at(at - sizeof(found))
        .want(number, found);
  };
  at = bytes.size() - sizeof(std::uint64_t);
  expect(XXH3_64bits(bytes.data(), at), "the file's sum is wrong");
  at = 0;
  expect(kMagic, "this is no state of the resident optimizer");
  std::uint64_t step = 0;
  take(&step, sizeof(step));
  expect(states_.size(), "another number of pieces");
  std::vector<State> loaded = states_;
  for (State& state : loaded) {
    expect(state.main.size(), "a piece has another size");
    for (auto* values : {&state.main, &state.exp_avg, &state.exp_avg_sq}) {
      take(values->data(), values->size() * sizeof(float));
    }
  }
  states_ = std::move(loaded);
  step_ = step;
  for (std::size_t p = 0; p < states_.size(); ++p) {
    std::transform(states_[p].main.begin(), states_[p].main.end(), model_.value(pieces()[p]),
                   [](float value) { return narrow(value); });
  }
}

}  // namespace millpond::sample
