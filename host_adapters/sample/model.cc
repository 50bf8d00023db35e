#include "host_adapters/sample/model.h"

#include <algorithm>
#include <cmath>

#include "host_adapters/sample/random.h"

namespace millpond::sample {
namespace {

constexpr std::size_t kRowsPerTask = 32;

}  // namespace

void Model::add(const std::string& name, std::vector<std::uint64_t> shape, bool decays,
                double range, std::uint64_t seed) {
  Parameter parameter{name, std::move(shape), decays, {}, {}};
  std::size_t numel = 1;
  for (const std::uint64_t extent : parameter.shape) numel *= extent;
  parameter.value.resize(numel);
  parameter.grad.resize(numel);
  const std::uint64_t stream = parameters_.size();
  for (std::size_t i = 0; i < numel; ++i) {
    parameter.value[i] = narrow(static_cast<float>(range * signed_unit_at(seed, stream, i)));
  }
  wide_.emplace_back(numel);
  parameters_.push_back(std::move(parameter));
}

Model::Model(const Shape& shape, std::uint64_t seed, Workers& workers)
    : shape_(shape), workers_(workers), dense_(workers) {
  add("embedding.weight", {kBytes, shape.embedding}, false, 1.0, seed);
  std::size_t inputs = shape.context * shape.embedding;
  for (std::size_t layer = 0; layer <= shape.layers; ++layer) {
    const bool last = layer == shape.layers;
    const std::size_t outputs = last ? kBytes : shape.hidden;
    const std::string name = last ? "output" : "hidden." + std::to_string(layer);
    // Even values of variance 2 / inputs keep the size of what passes through a ReLU.
    const double range = std::sqrt((last ? 1.0 : 6.0) / static_cast<double>(inputs));
    stack_.push_back({parameters_.size(), inputs, outputs});
    add(name + ".weight", {inputs, outputs}, true, range, seed);
    add(name + ".bias", {outputs}, false, 0.0, seed);
    inputs = outputs;
  }
  activations_.resize(stack_.size() + 1);
  widen_parameters();
}

std::size_t Model::parameter_count() const {
  std::size_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.numel();
  return count;
}

void Model::widen_parameters() {
  constexpr std::size_t kSlice = 65536;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const std::vector<Bfloat>& from = parameters_[p].value;
    std::vector<float>& to = wide_[p];
    workers_.run((from.size() + kSlice - 1) / kSlice, [&](std::size_t slice) {
      const std::size_t last = std::min(from.size(), (slice + 1) * kSlice);
      for (std::size_t i = slice * kSlice; i < last; ++i) to[i] = widen(from[i]);
    });
  }
}

double Model::forward(std::span<const std::uint8_t> contexts, std::span<const std::uint8_t> targets,
                      bool gradient) {
  const std::size_t batch = targets.size();
  const std::size_t row_tasks = (batch + kRowsPerTask - 1) / kRowsPerTask;
  const std::size_t width = shape_.embedding;
  activations_[0].resize(batch * stack_[0].inputs);
  workers_.run(row_tasks, [&](std::size_t task) {
    const std::size_t begin = task * kRowsPerTask * shape_.context;
    const std::size_t end = std::min(contexts.size(), begin + kRowsPerTask * shape_.context);
    for (std::size_t i = begin; i < end; ++i) {
      std::copy_n(wide_[0].data() + contexts[i] * width, width, activations_[0].data() + i * width);
    }
  });

  for (std::size_t l = 0; l < stack_.size(); ++l) {
    const Layer& layer = stack_[l];
    std::vector<float>& out = activations_[l + 1];
    out.resize(batch * layer.outputs);
    dense_.multiply(view(activations_[l].data(), batch, layer.inputs),
                    view(wide_[layer.weight].data(), layer.inputs, layer.outputs), out.data());
    const float* bias = wide_[layer.weight + 1].data();
    const bool relu = l + 1 < stack_.size();
    workers_.run(row_tasks, [&](std::size_t task) {
      const std::size_t last = std::min(batch, (task + 1) * kRowsPerTask);
      for (std::size_t row = task * kRowsPerTask; row < last; ++row) {
        float* values = out.data() + row * layer.outputs;
        for (std::size_t j = 0; j < layer.outputs; ++j) {
          const float sum = values[j] + bias[j];
          values[j] = relu && sum < 0.0F ? 0.0F : sum;
        }
      }
    });
  }

  // Softmax and cross-entropy; for the gradient the logits' place takes (softmax - target) / batch.
  row_loss_.resize(batch);
  std::vector<float>& logits = activations_.back();
  const float share = 1.0F / static_cast<float>(batch);
  workers_.run(row_tasks, [&](std::size_t task) {
    float exponentials[kBytes];
    const std::size_t last = std::min(batch, (task + 1) * kRowsPerTask);
    for (std::size_t row = task * kRowsPerTask; row < last; ++row) {
      float* values = logits.data() + row * kBytes;
      const float largest = *std::max_element(values, values + kBytes);
      float sum = 0.0F;
      for (std::size_t j = 0; j < kBytes; ++j) {
        exponentials[j] = std::exp(values[j] - largest);
        sum += exponentials[j];
      }
      row_loss_[row] = std::log(sum) - (values[targets[row]] - largest);
      if (!gradient) continue;
      const float scale = share / sum;
      for (std::size_t j = 0; j < kBytes; ++j) values[j] = exponentials[j] * scale;
      values[targets[row]] -= share;
    }
  });
  double total = 0.0;
  for (std::size_t row = 0; row < batch; ++row) total += row_loss_[row];
  return total / static_cast<double>(batch);
}

double Model::loss(std::span<const std::uint8_t> contexts, std::span<const std::uint8_t> targets) {
  return forward(contexts, targets, false);
}

double Model::backward(std::span<const std::uint8_t> contexts,
                       std::span<const std::uint8_t> targets) {
  const double mean = forward(contexts, targets, true);
  const std::size_t batch = targets.size();
  std::swap(error_, activations_.back());
  for (std::size_t l = stack_.size(); l-- > 0;) {
    const Layer& layer = stack_[l];
    const View input = view(activations_[l].data(), batch, layer.inputs);
    const View error = view(error_.data(), batch, layer.outputs);
    dense_.multiply(transposed(input), error, parameters_[layer.weight].grad.data());
    dense_.column_sums(error, parameters_[layer.weight + 1].grad.data());
    next_error_.resize(batch * layer.inputs);
    const View weight = view(wide_[layer.weight].data(), layer.inputs, layer.outputs);
    dense_.multiply(error, transposed(weight), next_error_.data());
    if (l > 0) {
      // The input was a ReLU's output: where it is zero, nothing passes.
      workers_.run((batch + kRowsPerTask - 1) / kRowsPerTask, [&](std::size_t task) {
        const std::size_t begin = task * kRowsPerTask * layer.inputs;
        const std::size_t end = std::min(batch * layer.inputs, begin + kRowsPerTask * layer.inputs);
        const float* outputs = activations_[l].data();
        for (std::size_t i = begin; i < end; ++i) {
          next_error_[i] = outputs[i] > 0.0F ? next_error_[i] : 0.0F;
        }
      });
    }
    std::swap(error_, next_error_);
  }
  embedding_gradient(contexts, batch);
  return mean;
}

// Each task owns a slice of the embedding's columns and walks the batch in order.
void Model::embedding_gradient(std::span<const std::uint8_t> contexts, std::size_t batch) {
  constexpr std::size_t kSlice = 8;
  const std::size_t width = shape_.embedding;
  float* grad = parameters_[0].grad.data();
  workers_.run((width + kSlice - 1) / kSlice, [&](std::size_t slice) {
    const std::size_t first = slice * kSlice;
    const std::size_t last = std::min(width, first + kSlice);
    for (std::size_t byte = 0; byte < kBytes; ++byte) {
      std::fill(grad + byte * width + first, grad + byte * width + last, 0.0F);
    }
    for (std::size_t i = 0; i < batch * shape_.context; ++i) {
      const float* error = error_.data() + i * width;
      float* row = grad + contexts[i] * width;
      for (std::size_t j = first; j < last; ++j) row[j] += error[j];
    }
  });
}

}  // namespace millpond::sample
