#include "host_adapters/sample/gradients.h"

#include <bit>
#include <cmath>
#include <span>

namespace millpond::sample {

std::string unfit_micro_batches(std::uint64_t micro_batches, std::uint32_t ranks) {
  const std::uint64_t each = micro_batches / ranks;
  if (ranks == 1 || (micro_batches % ranks == 0 && std::has_single_bit(each))) return {};
  return "give --micro-batches as --ranks times 1, 2, 4, ...: " + std::to_string(ranks) + ", " +
         std::to_string(2 * ranks) + ", " + std::to_string(4 * ranks) + ", not " +
         std::to_string(micro_batches);
}

Gradients::Gradients(Model& model, Collective& ranks, std::size_t micro_batches)
    : model_(model), ranks_(ranks), micro_batches_(micro_batches) {
  const std::size_t own = micro_batches / ranks.size();
  kept_.resize(std::bit_width(own - 1));
  for (auto& level : kept_) {
    for (std::size_t section = 0; section < Layout::kSections; ++section) {
      level[section] = Array<float>(model.device(), model.layout().elements(section));
    }
  }
}

void Gradients::keep(std::size_t level) {
  for (std::size_t section = 0; section < Layout::kSections; ++section) {
    model_.device().copy(kept_[level][section].get(), model_.grads(section),
                         model_.layout().elements(section) * sizeof(float));
  }
}

void Gradients::add_kept(std::size_t level) {
  for (std::size_t section = 0; section < Layout::kSections; ++section) {
    model_.device().add(model_.grads(section), kept_[level][section].get(),
                        model_.layout().elements(section));
  }
}

// Counting the finished micro-batches in binary, the set bits are the branches that wait. A new one
// joins its neighbours until it meets a free place; what is left over joins at the end, smallest
// first. The ranks' sums are the tree's upper part.
double Gradients::compute(const Text& text, const Batch& batch) {
  const std::size_t own = micro_batches_ / ranks_.size();
  const std::size_t rows = batch.targets.size();
  std::vector<double> nats(micro_batches_);
  for (std::size_t i = 0; i < own; ++i) {
    const std::size_t micro = ranks_.rank() * own + i;
    const std::size_t first = micro * rows / micro_batches_;
    const std::size_t count = (micro + 1) * rows / micro_batches_ - first;
    nats[micro] = model_.backward(
        std::span(batch.contexts).subspan(first * text.context(), count * text.context()),
        std::span(batch.targets).subspan(first, count), rows);
    std::size_t level = 0;
    for (; (i >> level & 1U) != 0; ++level) add_kept(level);
    if (i + 1 < own) keep(level);
    if (i + 1 < own) continue;
    for (++level; level < kept_.size(); ++level) {
      if ((i >> level & 1U) != 0) add_kept(level);
    }
  }
  const millpond_stream stream = model_.device().stream();
  for (std::size_t section = 0; section < Layout::kSections; ++section) {
    const std::size_t range = model_.layout().range(section);
    float* const grads = model_.grads(section);
    ranks_.reduce_scatter(grads, grads + ranks_.rank() * range, range, stream);
  }
  ranks_.all_gather(nats.data() + ranks_.rank() * own, nats.data(), own * sizeof(double),
                    {MILLPOND_DEVICE_CPU, 0, 0});
  ranks_.finish(stream);
  double total = 0.0;
  for (const double sum : nats) total += sum;
  return total / static_cast<double>(rows);
}

double Gradients::norm() {
  double total = 0.0;
  std::vector<double> sums;
  for (std::size_t section = 0; section < Layout::kSections; ++section) {
    const std::size_t range = model_.layout().range(section);
    const std::size_t slices = range / kSlice;
    sums.assign(slices * ranks_.size(), 0.0);
    double* const own = sums.data() + slices * ranks_.rank();
    model_.device().slice_squares(model_.grads(section) + ranks_.rank() * range, slices, own);
    ranks_.all_gather(own, sums.data(), slices * sizeof(double), {MILLPOND_DEVICE_CPU, 0, 0});
    for (const double sum : sums) total += sum;
  }
  return std::sqrt(total);
}

}  // namespace millpond::sample
