// The model on a CUDA device: plain kernels, products and sums in fp32, parameters read as they
// are.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_CUDA_MODEL_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_CUDA_MODEL_H_

#include <vector>

#include "host_adapters/sample/cuda_device.h"
#include "host_adapters/sample/model.h"

namespace millpond::sample {

class CudaModel : public Model {
 public:
  CudaModel(const Layout& layout, std::uint64_t seed, CudaDevice& device);

  // Both wait for their result.
  double loss(std::span<const std::uint8_t> contexts,
              std::span<const std::uint8_t> targets) override;
  double backward(std::span<const std::uint8_t> contexts, std::span<const std::uint8_t> targets,
                  std::size_t step_rows) override;
  void values_changed() override {}

 private:
  void make_room(std::size_t rows);
  double forward(std::span<const std::uint8_t> contexts, std::span<const std::uint8_t> targets,
                 std::size_t step_rows);

  CudaDevice& cuda_;
  std::size_t room_ = 0;                   // rows
  std::vector<Array<float>> activations_;  // input of each layer, then the logits
  Array<float> error_, next_error_;        // gradient of a layer's output and of its input
  Array<float> row_loss_;
  Array<std::uint8_t> contexts_, targets_;
  std::vector<float> losses_;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_CUDA_MODEL_H_
