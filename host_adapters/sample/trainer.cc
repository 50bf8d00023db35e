#include "host_adapters/sample/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <utility>

#include "host_adapters/sample/comparison.h"
#include "host_adapters/sample/evaluation.h"
#include "host_adapters/sample/gradients.h"
#include "host_adapters/sample/saves.h"
#include "host_adapters/sample/streamed_adam.h"
#include "host_adapters/sample/text.h"

namespace millpond::sample {
namespace {

std::string shape_text(const Shape& shape) {
  return "context " + std::to_string(shape.context) + ", embedding " +
         std::to_string(shape.embedding) + ", hidden " + std::to_string(shape.hidden) +
         ", layers " + std::to_string(shape.layers);
}

std::unique_ptr<Optimizer> make_optimizer(const Arguments& arguments, bool streamed, Model& model,
                                          const Place& place, Progress& progress) {
  if (!streamed) return place.make_resident(model, arguments.hyper);
  return std::make_unique<StreamedAdam>(client::Plugin::open(arguments.plugin), model,
                                        place.ranks(), arguments.hyper,
                                        arguments.options_json(place.rank()),
                                        [&progress](std::uint32_t level, std::string_view line) {
                                          const bool important = level <= MILLPOND_LOG_WARNING;
                                          progress.line("plugin: " + std::string(line), important);
                                        });
}

// Each rank's range of the parameters to all the others.
void share_values(Model& model, Collective& ranks) {
  const millpond_stream stream = model.device().stream();
  for (std::size_t section = 0; section < Layout::kSections; ++section) {
    const std::size_t range = model.layout().range(section);
    Bfloat* const values = model.values(section);
    ranks.all_gather(values + ranks.rank() * range, values, range * sizeof(Bfloat), stream);
  }
  ranks.finish(stream);
  model.values_changed();
}

void copy_gradients(const Model& from, Model& to, std::uint32_t rank) {
  for (std::size_t section = 0; section < Layout::kSections; ++section) {
    const std::size_t range = from.layout().range(section);
    from.device().copy(to.grads(section) + rank * range, from.grads(section) + rank * range,
                       range * sizeof(float));
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<RankFigures> gather_figures(const Costs& costs, const Place& place) {
  RankFigures own;
  std::vector<double> seconds = costs.optimizer_seconds;
  if (!seconds.empty()) {
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    own.optimizer_seconds = *middle;
  }
  own.bytes_read = costs.last.bytes_read;
  own.bytes_written = costs.last.bytes_written;
  own.resident_bytes = costs.resident_bytes;
  own.device_bytes = place.device().bytes_in_use();
  std::snprintf(own.bound_by, sizeof(own.bound_by), "%s", costs.last.bound_by.c_str());
  std::vector<RankFigures> all(place.ranks().size());
  place.ranks().all_gather(&own, all.data(), sizeof(own), {MILLPOND_DEVICE_CPU, 0, 0});
  return all;
}

}  // namespace

RunResult train(const Arguments& arguments, const Place& place, Progress& progress) {
  Collective& ranks = place.ranks();
  const Text text(arguments.text, arguments.shape.context);
  const Layout layout(arguments.shape, ranks.size());

  std::vector<Side> sides;
  for (const bool streamed : {false, true}) {
    if (arguments.mode == (streamed ? Mode::kResident : Mode::kStreamed)) continue;
    Side side{streamed ? "streamed" : "resident", nullptr, nullptr};
    side.model = place.make_model(layout, arguments.seed);
    side.optimizer = make_optimizer(arguments, streamed, *side.model, place, progress);
    sides.push_back(std::move(side));
  }
  Model& model = *sides.front().model;
  const RunIdentity identity{sides.front().name,
                             shape_text(arguments.shape),
                             arguments.mode == Mode::kResident ? "fp32" : arguments.moments,
                             text.fingerprint(),
                             arguments.seed,
                             arguments.batch,
                             arguments.micro_batches,
                             arguments.hyper,
                             arguments.steps};

  RunResult result;
  if (!arguments.resume.empty()) {
    result.first_step =
        1 + load_save(arguments.resume, identity,
                      arguments.new_hyperparameters || arguments.weights_only,
                      *sides.front().optimizer,
                      [&progress](const std::string& note) { progress.milestone(note); });
    share_values(model, ranks);
    progress.milestone("resumed after step " + std::to_string(result.first_step - 1));
    if (result.first_step > arguments.last_step()) {
      progress.milestone("nothing left to do: this run ends with step " +
                         std::to_string(arguments.last_step()) + " (--steps, --stop-after)");
    }
    if (arguments.weights_only) {
      // The old optimizer goes first: its scratch space and memory may be all there is.
      Side& side = sides.front();
      side.optimizer.reset();
      side.optimizer = make_optimizer(arguments, arguments.mode == Mode::kStreamed, *side.model,
                                      place, progress);
    }
  }

  result.place = place.device().description();
  if (ranks.size() > 1) {
    result.place = std::to_string(ranks.size()) + " ranks over " + ranks.description() +
                   ", rank 0 on " + result.place;
  }
  result.parameters = layout.parameter_count();
  for (std::size_t section = 0; section < Layout::kSections; ++section) {
    result.model_device_bytes +=
        sides.size() * layout.elements(section) * (sizeof(Bfloat) + sizeof(float));
  }
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
  Gradients gradients(model, ranks, arguments.micro_batches);
  Batch batch;
  for (std::uint64_t step = result.first_step; step <= last_step; ++step) {
    const auto start = std::chrono::steady_clock::now();
    text.draw(arguments.seed, step, arguments.batch, &batch);
    const double nats = gradients.compute(text, batch);
    const double norm = gradients.norm();
    const StepInput input{learning_rate(arguments.hyper, step, arguments.steps),
                          arguments.hyper.clip > 0.0
                              ? static_cast<float>(std::max(1.0, norm / arguments.hyper.clip))
                              : 1.0F,
                          !std::isfinite(norm)};
    if (input.found_inf) ++result.skipped;
    const double shared = seconds_since(start);
    for (std::size_t s = 0; s < sides.size(); ++s) {
      // The sides' parameters were equal after the step before, so their gradients are, too.
      if (s > 0) copy_gradients(model, *sides[s].model, place.rank());
      const auto moved = std::chrono::steady_clock::now();
      const StepCost cost = sides[s].optimizer->step(input);
      share_values(*sides[s].model, ranks);
      Costs& costs = result.costs[s];
      costs.optimizer_seconds.push_back(cost.seconds);
      costs.step_seconds.push_back(shared + seconds_since(moved));
      if (step == result.first_step) costs.first = cost;
      costs.last = cost;
    }
    progress.step(step, last_step, nats / std::numbers::ln2);

    if (sides.size() == 2) {
      compare_values(sides[0], sides[1], step);
      if (step % arguments.compare_every == 0 || step == last_step) {
        compare_states(sides[0], sides[1], step);
      }
    }
    if (step % evaluate_every == 0 || step == last_step) {
      result.evaluations.push_back({step, evaluate(model, text, places, ranks)});
      char line[80];
      std::snprintf(line, sizeof(line), "step %6llu  %.4f bits/byte",
                    static_cast<unsigned long long>(step), result.evaluations.back().bits_per_byte);
      progress.line(line);
    }
    const bool due = arguments.save_every != 0 && step % arguments.save_every == 0;
    if (!arguments.save.empty() && (due || step == last_step)) {
      write_save(arguments.save, step, identity, *sides.front().optimizer, ranks);
      progress.milestone("saved step " + std::to_string(step));
    }
  }
  if (result.evaluations.empty()) {
    result.evaluations.push_back({result.first_step - 1, evaluate(model, text, places, ranks)});
  }
  for (std::size_t s = 0; s < sides.size(); ++s) {
    result.costs[s].resident_bytes = sides[s].optimizer->resident_bytes();
  }
  result.ranks = gather_figures(result.costs.back(), place);
  result.digest = digest(model, ranks);
  result.final_parameters.reserve(result.parameters);
  for (std::size_t p = 0; p < layout.parameters().size(); ++p) {
    for (const Bfloat value : model.download(p)) result.final_parameters.push_back(widen(value));
  }
  return result;
}

}  // namespace millpond::sample
