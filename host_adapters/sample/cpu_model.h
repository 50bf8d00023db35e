// The model on the CPU: products by dense, everything in fp32.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_CPU_MODEL_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_CPU_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "host_adapters/sample/cpu_device.h"
#include "host_adapters/sample/dense.h"
#include "host_adapters/sample/model.h"

namespace millpond::sample {

class CpuModel : public Model {
 public:
  CpuModel(const Layout& layout, std::uint64_t seed, CpuDevice& device);

  double loss(std::span<const std::uint8_t> contexts,
              std::span<const std::uint8_t> targets) override;
  double backward(std::span<const std::uint8_t> contexts, std::span<const std::uint8_t> targets,
                  std::size_t step_rows) override;
  void values_changed() override;

  // For finite differences: the fp32 values that the products use.
  std::span<float> wide(std::size_t parameter) { return wide_[parameter]; }

 private:
  // `step_rows` 0: the loss only.
  double forward(std::span<const std::uint8_t> contexts, std::span<const std::uint8_t> targets,
                 std::size_t step_rows);
  void embedding_gradient(std::span<const std::uint8_t> contexts, std::size_t batch);

  Workers& workers_;
  Dense dense_;
  std::vector<std::vector<float>> wide_;
  std::vector<std::vector<float>> activations_;  // input of each layer, then the logits
  std::vector<float> row_loss_;
  std::vector<float> error_, next_error_;  // gradient of a layer's output and of its input
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_CPU_MODEL_H_
