#include "host_adapters/sample/cuda_model.h"

#include <algorithm>
#include <utility>

#include "host_adapters/sample/cuda_kernels.h"

namespace millpond::sample {
namespace {

cuda::Matrix matrix(const float* data, std::size_t rows, std::size_t columns) {
  return {data, nullptr, rows, columns, columns, 1};
}
cuda::Matrix matrix(const Bfloat* data, std::size_t rows, std::size_t columns) {
  return {nullptr, data, rows, columns, columns, 1};
}
cuda::Matrix transposed(cuda::Matrix m) {
  std::swap(m.rows, m.columns);
  std::swap(m.row_stride, m.column_stride);
  return m;
}

}  // namespace

CudaModel::CudaModel(const Layout& layout, std::uint64_t seed, CudaDevice& device)
    : Model(layout, seed, device), cuda_(device), activations_(stack().size() + 1) {}

void CudaModel::make_room(std::size_t rows) {
  if (rows <= room_) return;
  std::size_t widest = kBytes;
  for (std::size_t l = 0; l < stack().size(); ++l) {
    activations_[l] = Array<float>();
    activations_[l] = Array<float>(cuda_, rows * stack()[l].inputs);
    widest = std::max(widest, stack()[l].inputs);
  }
  for (Array<float>* each : {&activations_.back(), &error_, &next_error_}) {
    *each = Array<float>();
    *each = Array<float>(cuda_, rows * widest);
  }
  row_loss_ = Array<float>(cuda_, rows);
  contexts_ = Array<std::uint8_t>(cuda_, rows * layout().shape().context);
  targets_ = Array<std::uint8_t>(cuda_, rows);
  losses_.resize(rows);
  room_ = rows;
}

double CudaModel::forward(std::span<const std::uint8_t> contexts,
                          std::span<const std::uint8_t> targets, std::size_t step_rows) {
  const std::size_t rows = targets.size();
  if (rows == 0) return 0.0;
  const cudaStream_t stream = cuda_.cuda_stream();
  make_room(rows);
  cuda_.upload(contexts_.get(), contexts.data(), contexts.size());
  cuda_.upload(targets_.get(), targets.data(), targets.size());
  cuda::gather_rows(contexts_.get(), contexts.size(), value(whole(0)), layout().shape().embedding,
                    activations_[0].get(), stream);
  for (std::size_t l = 0; l < stack().size(); ++l) {
    const Layer& layer = stack()[l];
    cuda::multiply(matrix(activations_[l].get(), rows, layer.inputs),
                   matrix(value(whole(layer.weight)), layer.inputs, layer.outputs),
                   activations_[l + 1].get(), stream);
    cuda::add_bias(activations_[l + 1].get(), value(whole(layer.weight + 1)), rows, layer.outputs,
                   l + 1 < stack().size(), stream);
  }
  const float share = step_rows == 0 ? 0.0F : 1.0F / static_cast<float>(step_rows);
  cuda::softmax(activations_.back().get(), targets_.get(), rows, share, row_loss_.get(), stream);
  check_cuda(cudaGetLastError(), "forward");
  cuda_.download(losses_.data(), row_loss_.get(), rows * sizeof(float));
  double total = 0.0;
  for (std::size_t row = 0; row < rows; ++row) total += losses_[row];
  return total;
}

double CudaModel::loss(std::span<const std::uint8_t> contexts,
                       std::span<const std::uint8_t> targets) {
  return forward(contexts, targets, 0);
}

double CudaModel::backward(std::span<const std::uint8_t> contexts,
                           std::span<const std::uint8_t> targets, std::size_t step_rows) {
  const double total = forward(contexts, targets, step_rows);
  const std::size_t rows = targets.size();
  const cudaStream_t stream = cuda_.cuda_stream();
  std::swap(error_, activations_.back());
  for (std::size_t l = stack().size(); l-- > 0;) {
    const Layer& layer = stack()[l];
    const cuda::Matrix error = matrix(error_.get(), rows, layer.outputs);
    cuda::multiply(transposed(matrix(activations_[l].get(), rows, layer.inputs)), error,
                   grad(whole(layer.weight)), stream);
    cuda::column_sums(error_.get(), rows, layer.outputs, grad(whole(layer.weight + 1)), stream);
    cuda::multiply(error,
                   transposed(matrix(value(whole(layer.weight)), layer.inputs, layer.outputs)),
                   next_error_.get(), stream);
    // The input was a ReLU's output: where it is zero, nothing passes.
    if (l > 0) {
      cuda::mask(next_error_.get(), activations_[l].get(), rows * layer.inputs, stream);
    }
    std::swap(error_, next_error_);
  }
  cuda::scatter_rows(contexts_.get(), contexts.size(), error_.get(), layout().shape().embedding,
                     grad(whole(0)), stream);
  check_cuda(cudaGetLastError(), "backward");
  return total;
}

}  // namespace millpond::sample
