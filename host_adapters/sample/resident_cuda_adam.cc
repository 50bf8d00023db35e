#include "host_adapters/sample/resident_cuda_adam.h"

#include <chrono>

#include "host_adapters/sample/cuda_kernels.h"
#include "millpond/error.hpp"

namespace millpond::sample {

ResidentCudaAdam::ResidentCudaAdam(Model& model, std::uint32_t rank, const Hyperparameters& hyper,
                                   CudaDevice& device)
    : Optimizer(model.layout().pieces(rank)), model_(model), hyper_(hyper), device_(device) {
  for (const Piece& piece : pieces()) {
    State state{Array<float>(device, piece.numel()), Array<float>(device, piece.numel()),
                Array<float>(device, piece.numel())};
    cuda::widen(model.value(piece), state.main.get(), piece.numel(), device.cuda_stream());
    states_.push_back(std::move(state));
  }
  check_cuda(cudaGetLastError(), "widen parameters");
}

StepCost ResidentCudaAdam::step(const StepInput& input) {
  const auto start = std::chrono::steady_clock::now();
  if (!input.found_inf) {
    ++step_;
    cuda::AdamStep step = {static_cast<float>(input.lr),
                           static_cast<float>(hyper_.beta1),
                           static_cast<float>(hyper_.beta2),
                           static_cast<float>(hyper_.eps),
                           0.0F,
                           input.grad_scale,
                           static_cast<float>(step_)};
    for (std::size_t p = 0; p < states_.size(); ++p) {
      const Piece& piece = pieces()[p];
      const bool decays = model_.layout().parameters()[piece.parameter].decays;
      step.weight_decay = decays ? static_cast<float>(hyper_.weight_decay) : 0.0F;
      cuda::adam(step, piece.numel(), model_.grad(piece), states_[p].main.get(),
                 states_[p].exp_avg.get(), states_[p].exp_avg_sq.get(), model_.value(piece),
                 device_.cuda_stream());
    }
    check_cuda(cudaGetLastError(), "resident Adam");
    check_cuda(cudaStreamSynchronize(device_.cuda_stream()), "resident Adam");
  }
  StepCost cost;
  cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return cost;
}

void ResidentCudaAdam::read(std::size_t piece, Part part, std::size_t begin,
                            std::span<float> values) {
  const State& state = states_.at(piece);
  const Array<float>& from = part == Part::kMain     ? state.main
                             : part == Part::kExpAvg ? state.exp_avg
                                                     : state.exp_avg_sq;
  device_.download(values.data(), from.get() + begin, values.size_bytes());
}

std::uint64_t ResidentCudaAdam::resident_bytes() {
  std::uint64_t elements = 0;
  for (const Piece& piece : pieces()) elements += piece.numel();
  return 3 * sizeof(float) * elements;
}

std::string ResidentCudaAdam::description() { return "resident Adam, fp32 state on the device"; }

void ResidentCudaAdam::save(const std::filesystem::path& path) {
  throw Error(MILLPOND_E_UNSUPPORTED, "save", "the resident optimizer on CUDA has no files")
      .path(path.string());
}

void ResidentCudaAdam::load(const std::filesystem::path& path) {
  throw Error(MILLPOND_E_UNSUPPORTED, "load", "the resident optimizer on CUDA has no files")
      .path(path.string());
}

}  // namespace millpond::sample
