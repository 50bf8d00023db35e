#include "host_adapters/sample/trainer.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numbers>
#include <utility>

#include "host_adapters/sample/resident_adam.h"
#include "host_adapters/sample/saves.h"
#include "host_adapters/sample/streamed_adam.h"
#include "millpond/error.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace millpond::sample {
namespace {

// A model and the optimizer that moves it. --compare has two.
struct Side {
  std::string name;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
};

std::string shape_text(const Shape& shape) {
  return "context " + std::to_string(shape.context) + ", embedding " +
         std::to_string(shape.embedding) + ", hidden " + std::to_string(shape.hidden) +
         ", layers " + std::to_string(shape.layers);
}

std::unique_ptr<Optimizer> make_optimizer(const Arguments& arguments, bool streamed, Model& model,
                                          Workers& workers, Progress& progress) {
  if (!streamed) return std::make_unique<ResidentAdam>(model, arguments.hyper, workers);
  std::filesystem::create_directories(arguments.scratch);
  return std::make_unique<StreamedAdam>(client::Plugin::open(arguments.plugin), model,
                                        arguments.hyper, arguments.options_json(),
                                        [&progress](std::uint32_t level, std::string_view line) {
                                          const bool important = level <= MILLPOND_LOG_WARNING;
                                          progress.line("plugin: " + std::string(line), important);
                                        });
}

// The global norm, summed in double over fixed slices in a fixed order.
double gradient_norm(const Model& model, Workers& workers) {
  constexpr std::size_t kSlice = 16384;
  double total = 0.0;
  std::vector<double> sums;
  for (const Parameter& parameter : model.parameters()) {
    const std::vector<float>& grad = parameter.grad;
    sums.assign((grad.size() + kSlice - 1) / kSlice, 0.0);
    workers.run(sums.size(), [&](std::size_t slice) {
      const std::size_t last = std::min(grad.size(), (slice + 1) * kSlice);
      double sum = 0.0;
      for (std::size_t i = slice * kSlice; i < last; ++i) {
        sum += static_cast<double>(grad[i]) * grad[i];
      }
      sums[slice] = sum;
    });
    for (const double sum : sums) total += sum;
  }
  return std::sqrt(total);
}

void compare_parameters(const Side& left, const Side& right, std::uint64_t step) {
  for (std::size_t p = 0; p < left.model->parameters().size(); ++p) {
    const Parameter& a = left.model->parameters()[p];
    const Parameter& b = right.model->parameters()[p];
    const auto place = std::mismatch(a.value.begin(), a.value.end(), b.value.begin());
    if (place.first == a.value.end()) continue;
    char values[80];
    std::snprintf(values, sizeof(values), "%s 0x%04x, %s 0x%04x", left.name.c_str(), *place.first,
                  right.name.c_str(), *place.second);
    throw Different({a.name, "parameter", static_cast<std::size_t>(place.first - a.value.begin()),
                     step, values});
  }
}

void compare_states(Side& left, Side& right, std::uint64_t step) {
  constexpr std::size_t kSlice = 65536;
  std::vector<float> a(kSlice), b(kSlice);
  for (std::size_t p = 0; p < left.model->parameters().size(); ++p) {
    const Parameter& parameter = left.model->parameters()[p];
    for (const auto& [part, name] :
         {std::pair{Part::kMain, "main"}, std::pair{Part::kExpAvg, "exp_avg"},
          std::pair{Part::kExpAvgSq, "exp_avg_sq"}}) {
      for (std::size_t begin = 0; begin < parameter.numel(); begin += kSlice) {
        const std::size_t count = std::min(kSlice, parameter.numel() - begin);
        left.optimizer->read(p, part, begin, std::span(a).first(count));
        right.optimizer->read(p, part, begin, std::span(b).first(count));
        if (std::memcmp(a.data(), b.data(), count * sizeof(float)) == 0) continue;
        for (std::size_t i = 0; i < count; ++i) {
          if (std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])) continue;
          char values[120];
          std::snprintf(values, sizeof(values), "%s %.9g (0x%08x), %s %.9g (0x%08x)",
                        left.name.c_str(), a[i], std::bit_cast<std::uint32_t>(a[i]),
                        right.name.c_str(), b[i], std::bit_cast<std::uint32_t>(b[i]));
          throw Different({parameter.name, name, begin + i, step, values});
        }
      }
    }
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Different::Different(const Difference& d)
    : text_("step " + std::to_string(d.step) + ": " + d.part + " of " + d.parameter +
            " differs at index " + std::to_string(d.index) + ": " + d.values) {}

double evaluate(Model& model, const Text& text, const std::vector<std::size_t>& places) {
  constexpr std::size_t kBatch = 2048;
  Batch batch;
  double nats = 0.0;
  for (std::size_t first = 0; first < places.size(); first += kBatch) {
    const std::size_t count = std::min(kBatch, places.size() - first);
    text.gather(places.data() + first, count, &batch);
    nats += model.loss(batch.contexts, batch.targets) * static_cast<double>(count);
  }
  return nats / static_cast<double>(places.size()) / std::numbers::ln2;
}

std::string digest(const Model& model) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  if (!state || XXH3_128bits_reset(state.get()) == XXH_ERROR) throw std::bad_alloc();
  for (const Parameter& parameter : model.parameters()) {
    XXH3_128bits_update(state.get(), parameter.value.data(), parameter.numel() * sizeof(Bfloat));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  char text[40];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

RunResult train(const Arguments& arguments, Progress& progress) {
  Workers workers(arguments.threads);
  const Text text(arguments.text, arguments.shape.context);

  std::vector<Side> sides;
  for (const bool streamed : {false, true}) {
    if (arguments.mode == (streamed ? Mode::kResident : Mode::kStreamed)) continue;
    Side side{streamed ? "streamed" : "resident", nullptr, nullptr};
    side.model = std::make_unique<Model>(arguments.shape, arguments.seed, workers);
    side.optimizer = make_optimizer(arguments, streamed, *side.model, workers, progress);
    sides.push_back(std::move(side));
  }
  Model& model = *sides.front().model;
  const RunIdentity identity{sides.front().name,
                             shape_text(arguments.shape),
                             arguments.mode == Mode::kResident ? "fp32" : arguments.moments,
                             text.fingerprint(),
                             arguments.seed,
                             arguments.batch};

  RunResult result;
  if (!arguments.resume.empty()) {
    result.first_step =
        1 + load_save(arguments.resume, identity, *sides.front().optimizer,
                      [&progress](const std::string& note) { progress.line(note, true); });
    progress.line("resumed after step " + std::to_string(result.first_step - 1), true);
    if (arguments.weights_only) {
      // The old optimizer goes first: its scratch space and memory may be all there is.
      Side& side = sides.front();
      side.optimizer.reset();
      side.optimizer = make_optimizer(arguments, arguments.mode == Mode::kStreamed, *side.model,
                                      workers, progress);
    }
    model.widen_parameters();
  }

  result.parameters = model.parameter_count();
  result.text_bytes = text.size();
  const std::vector<std::size_t> places = text.even_places(arguments.evaluation_bytes);
  result.evaluated_bytes = places.size();
  result.bigram_bits_per_byte = text.bigram_bits_per_byte(places);
  const std::uint64_t evaluate_every =
      std::max<std::uint64_t>(1, arguments.steps / arguments.evaluations);
  for (const Side& side : sides) {
    result.names.push_back(side.name);
    result.costs.emplace_back().description = side.optimizer->description();
  }

  const std::uint64_t last_step = arguments.last_step();
  Batch batch;
  for (std::uint64_t step = result.first_step; step <= last_step; ++step) {
    const auto start = std::chrono::steady_clock::now();
    text.draw(arguments.seed, step, arguments.batch, &batch);
    const double nats = model.backward(batch.contexts, batch.targets);
    const double norm = gradient_norm(model, workers);
    const StepInput input{learning_rate(arguments.hyper, step, arguments.steps),
                          arguments.hyper.clip > 0.0
                              ? static_cast<float>(std::max(1.0, norm / arguments.hyper.clip))
                              : 1.0F,
                          !std::isfinite(norm)};
    if (input.found_inf) ++result.skipped;
    // The sides' parameters were equal after the step before, so their gradients are, too.
    for (std::size_t s = 1; s < sides.size(); ++s) {
      for (std::size_t p = 0; p < model.parameters().size(); ++p) {
        sides[s].model->parameters()[p].grad = model.parameters()[p].grad;
      }
    }
    const double shared = seconds_since(start);
    for (std::size_t s = 0; s < sides.size(); ++s) {
      Costs& costs = result.costs[s];
      const StepCost cost = sides[s].optimizer->step(input);
      costs.optimizer_seconds.push_back(cost.seconds);
      costs.step_seconds.push_back(shared + cost.seconds);
      if (step == result.first_step) costs.first = cost;
      costs.last = cost;
    }
    model.widen_parameters();
    progress.step(step, last_step, nats / std::numbers::ln2);

    if (sides.size() == 2) {
      compare_parameters(sides[0], sides[1], step);
      if (step % arguments.compare_every == 0 || step == last_step) {
        compare_states(sides[0], sides[1], step);
      }
    }
    if (step % evaluate_every == 0 || step == last_step) {
      result.evaluations.push_back({step, evaluate(model, text, places)});
      char line[80];
      std::snprintf(line, sizeof(line), "step %6llu  %.4f bits/byte",
                    static_cast<unsigned long long>(step), result.evaluations.back().bits_per_byte);
      progress.line(line);
    }
    const bool due = arguments.save_every != 0 && step % arguments.save_every == 0;
    if (!arguments.save.empty() && (due || step == last_step)) {
      std::filesystem::create_directories(arguments.save);
      write_save(arguments.save, step, identity, *sides.front().optimizer);
      progress.line("saved step " + std::to_string(step), true);
    }
  }
  for (std::size_t s = 0; s < sides.size(); ++s) {
    result.costs[s].resident_bytes = sides[s].optimizer->resident_bytes();
  }
  result.digest = digest(model);
  result.final_parameters.reserve(result.parameters);
  for (const Parameter& parameter : model.parameters()) {
    for (const Bfloat value : parameter.value) result.final_parameters.push_back(widen(value));
  }
  return result;
}

}  // namespace millpond::sample
