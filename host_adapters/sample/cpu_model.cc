#include "host_adapters/sample/cpu_model.h"

#include <algorithm>
#include <cmath>

namespace millpond::sample {
namespace {

constexpr std::size_t kRowsPerTask = 32;

}  // namespace

CpuModel::CpuModel(const Layout& layout, std::uint64_t seed, CpuDevice& device)
    : Model(layout, seed, device), workers_(device.workers()), dense_(device.workers()) {
  for (const Parameter& parameter : layout.parameters()) wide_.emplace_back(parameter.numel);
  activations_.resize(stack().size() + 1);
  CpuModel::values_changed();
}

void CpuModel::values_changed() {
  constexpr std::size_t kTask = 65536;
  for (std::size_t p = 0; p < wide_.size(); ++p) {
    const Bfloat* from = value(whole(p));
    std::vector<float>& to = wide_[p];
    workers_.run((to.size() + kTask - 1) / kTask, [&](std::size_t task) {
      const std::size_t last = std::min(to.size(), (task + 1) * kTask);
      for (std::size_t i = task * kTask; i < last; ++i) to[i] = widen(from[i]);
    });
  }
}

double CpuModel::forward(std::span<const std::uint8_t> contexts,
                         std::span<const std::uint8_t> targets, std::size_t step_rows) {
  const std::size_t batch = targets.size();
  const std::size_t row_tasks = (batch + kRowsPerTask - 1) / kRowsPerTask;
  const std::size_t width = layout().shape().embedding;
  activations_[0].resize(batch * stack()[0].inputs);
  workers_.run(row_tasks, [&](std::size_t task) {
    const std::size_t begin = task * kRowsPerTask * layout().shape().context;
    const std::size_t end =
        std::min(contexts.size(), begin + kRowsPerTask * layout().shape().context);
    for (std::size_t i = begin; i < end; ++i) {
      std::copy_n(wide_[0].data() + contexts[i] * width, width, activations_[0].data() + i * width);
    }
  });

  for (std::size_t l = 0; l < stack().size(); ++l) {
    const Layer& layer = stack()[l];
    std::vector<float>& out = activations_[l + 1];
    out.resize(batch * layer.outputs);
    dense_.multiply(view(activations_[l].data(), batch, layer.inputs),
                    view(wide_[layer.weight].data(), layer.inputs, layer.outputs), out.data());
    const float* bias = wide_[layer.weight + 1].data();
    const bool relu = l + 1 < stack().size();
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

  // Softmax and cross-entropy; for the gradient the logits' place takes (softmax - target) /
  // step_rows.
  row_loss_.resize(batch);
  std::vector<float>& logits = activations_.back();
  const float share = step_rows == 0 ? 0.0F : 1.0F / static_cast<float>(step_rows);
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
      if (step_rows == 0) continue;
      const float scale = share / sum;
      for (std::size_t j = 0; j < kBytes; ++j) values[j] = exponentials[j] * scale;
      values[targets[row]] -= share;
    }
  });
  double total = 0.0;
  for (std::size_t row = 0; row < batch; ++row) total += row_loss_[row];
  return total;
}

double CpuModel::loss(std::span<const std::uint8_t> contexts,
                      std::span<const std::uint8_t> targets) {
  return forward(contexts, targets, 0);
}

double CpuModel::backward(std::span<const std::uint8_t> contexts,
                          std::span<const std::uint8_t> targets, std::size_t step_rows) {
  const double total = forward(contexts, targets, step_rows);
  const std::size_t batch = targets.size();
  std::swap(error_, activations_.back());
  for (std::size_t l = stack().size(); l-- > 0;) {
    const Layer& layer = stack()[l];
    const View input = view(activations_[l].data(), batch, layer.inputs);
    const View error = view(error_.data(), batch, layer.outputs);
    dense_.multiply(transposed(input), error, grad(whole(layer.weight)));
    dense_.column_sums(error, grad(whole(layer.weight + 1)));
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
  return total;
}

// Each task owns a slice of the embedding's columns and walks the batch in order.
void CpuModel::embedding_gradient(std::span<const std::uint8_t> contexts, std::size_t batch) {
  constexpr std::size_t kSlice = 8;
  const std::size_t width = layout().shape().embedding;
  float* table = grad(whole(0));
  workers_.run((width + kSlice - 1) / kSlice, [&](std::size_t slice) {
    const std::size_t first = slice * kSlice;
    const std::size_t last = std::min(width, first + kSlice);
    for (std::size_t byte = 0; byte < kBytes; ++byte) {
      std::fill(table + byte * width + first, table + byte * width + last, 0.0F);
    }
    for (std::size_t i = 0; i < batch * layout().shape().context; ++i) {
      const float* error = error_.data() + i * width;
      float* row = table + contexts[i] * width;
      for (std::size_t j = first; j < last; ++j) row[j] += error[j];
    }
  });
}

}  // namespace millpond::sample
