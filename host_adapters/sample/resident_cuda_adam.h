// AdamW with its state in device memory, as torch's fused kernel for CUDA does it since 2.11,
// "torch_cuda_fused/2". Shares no code with the plugin. All in fp32 on the device:
//
//   c1 = 1 - pow(beta1, t), c2 = sqrt(1 - pow(beta2, t))
//   p  = fma(-(lr * weight_decay), p, p)
//   m  = fma(beta1, m, fma(-beta1, g, g))
//   v  = fma(beta2, v, fma(-beta2, g * g, g * g))
//   p -= (lr / c1 * m) / (sqrt(v) / c2 + eps)
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_RESIDENT_CUDA_ADAM_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_RESIDENT_CUDA_ADAM_H_

#include <vector>

#include "host_adapters/sample/cuda_device.h"
#include "host_adapters/sample/model.h"
#include "host_adapters/sample/optimizer.h"

namespace millpond::sample {

class ResidentCudaAdam : public Optimizer {
 public:
  // Mains are the rank's part of the model widened. Model and device must outlive the optimizer.
  ResidentCudaAdam(Model& model, std::uint32_t rank, const Hyperparameters& hyper,
                   CudaDevice& device);

  StepCost step(const StepInput& input) override;
  void read(std::size_t piece, Part part, std::size_t begin, std::span<float> values) override;
  std::uint64_t resident_bytes() override;
  std::string description() override;
  // Error(E_UNSUPPORTED): the command line asks for neither.
  void save(const std::filesystem::path& path) override;
  void load(const std::filesystem::path& path) override;

 private:
  struct State {
    Array<float> main, exp_avg, exp_avg_sq;
  };
  Model& model_;
  Hyperparameters hyper_;
  CudaDevice& device_;
  std::vector<State> states_;  // by piece
  std::uint64_t step_ = 0;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_RESIDENT_CUDA_ADAM_H_
