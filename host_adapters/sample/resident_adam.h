// AdamW with its state in memory: the ordinary case that streaming is compared with. Shares no code
// with the plugin. This one is for the CPU. The arithmetic is that of torch's fused AdamW on the
// CPU, "torch_cpu_fused/1":
//
//   w = 1 - beta1, c = 1 - beta2, step_size = -lr / (1 - beta1^t), b = sqrt(1 - beta2^t), each in
//   double, then rounded to float
//   p *= 1 - lr * weight_decay
//   m  = w < 0.5 ? fma(w, g - m, m) : fma(w - 1, g - m, g)
//   v  = fma(c * g, g, v * beta2); in the last numel % 8 elements of a piece fma(v, beta2, (c * g)
//   * g) p += step_size * m / (sqrt(v) / b + eps)
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_RESIDENT_ADAM_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_RESIDENT_ADAM_H_

#include <vector>

#include "host_adapters/sample/cpu_device.h"
#include "host_adapters/sample/dense_loops.h"
#include "host_adapters/sample/model.h"
#include "host_adapters/sample/optimizer.h"

namespace millpond::sample {

class ResidentAdam : public Optimizer {
 public:
  // Mains are the rank's part of the model widened. Model and device must outlive the optimizer.
  ResidentAdam(Model& model, std::uint32_t rank, const Hyperparameters& hyper, CpuDevice& device);

  StepCost step(const StepInput& input) override;
  void read(std::size_t piece, Part part, std::size_t begin, std::span<float> values) override;
  std::uint64_t resident_bytes() override;
  std::string description() override;
  void save(const std::filesystem::path& path) override;
  void load(const std::filesystem::path& path) override;

 private:
  struct State {
    std::vector<float> main, exp_avg, exp_avg_sq;
  };
  Model& model_;
  Hyperparameters hyper_;
  Workers& workers_;
  const DenseLoops& loops_;
  std::vector<State> states_;  // by piece
  std::uint64_t step_ = 0;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_RESIDENT_ADAM_H_
