#include "host_adapters/sample/layout.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace millpond::sample {
namespace {

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

void Layout::add(const std::string& name, std::vector<std::uint64_t> shape, bool decays,
                 double range, std::size_t section) {
  std::size_t numel = 1;
  for (const std::uint64_t extent : shape) numel *= extent;
  parameters_.push_back({name, std::move(shape), numel, decays, range, section, ends_[section]});
  ends_[section] += round_up(numel, kSlice);
}

Layout::Layout(const Shape& shape, std::uint32_t ranks)
    : shape_(shape), ranks_(ranks), ends_(kSections, 0) {
  add("embedding.weight", {kBytes, shape.embedding}, false, 1.0, 1);
  std::size_t inputs = shape.context * shape.embedding;
  for (std::size_t layer = 0; layer <= shape.layers; ++layer) {
    const bool last = layer == shape.layers;
    const std::size_t outputs = last ? kBytes : shape.hidden;
    const std::string name = last ? "output" : "hidden." + std::to_string(layer);
    // Even values of variance 2 / inputs keep the size of what passes through a ReLU.
    const double range = std::sqrt((last ? 1.0 : 6.0) / static_cast<double>(inputs));
    add(name + ".weight", {inputs, outputs}, true, range, 0);
    add(name + ".bias", {outputs}, false, 0.0, 0);
    inputs = outputs;
  }
  for (const std::size_t end : ends_) ranges_.push_back(round_up(end, ranks * kSlice) / ranks);
}

std::size_t Layout::parameter_count() const {
  std::size_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.numel;
  return count;
}

std::vector<Piece> Layout::pieces(std::uint32_t rank, std::size_t section) const {
  const std::size_t first = rank * ranges_[section];
  const std::size_t last = first + ranges_[section];
  std::vector<Piece> pieces;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const Parameter& parameter = parameters_[p];
    if (parameter.section != section) continue;
    const std::size_t begin = std::max(first, parameter.offset);
    const std::size_t end = std::min(last, parameter.offset + parameter.numel);
    if (begin >= end) continue;
    pieces.push_back({p, begin - parameter.offset, end - parameter.offset, section, begin});
  }
  return pieces;
}

std::vector<Piece> Layout::pieces(std::uint32_t rank) const {
  std::vector<Piece> all;
  for (std::size_t section = 0; section < kSections; ++section) {
    for (const Piece& piece : pieces(rank, section)) all.push_back(piece);
  }
  return all;
}

}  // namespace millpond::sample
