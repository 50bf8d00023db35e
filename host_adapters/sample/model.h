// A byte-level language model, forward and backward by hand: the last `context` bytes, each
// embedded, go through `layers` hidden layers with ReLU to a softmax over the next byte. Parameters
// are bf16, gradients fp32; products and sums are fp32.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_MODEL_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "host_adapters/sample/bfloat.h"
#include "host_adapters/sample/dense.h"
#include "host_adapters/sample/workers.h"

namespace millpond::sample {

inline constexpr std::size_t kBytes = 256;

struct Shape {
  std::size_t context = 8;     // bytes seen
  std::size_t embedding = 48;  // numbers a byte
  std::size_t hidden = 384;
  std::size_t layers = 2;
};

// One parameter with its gradient. Matrices are [inputs, outputs], row-major.
struct Parameter {
  std::string name;
  std::vector<std::uint64_t> shape;
  bool decays;  // belongs to the group with weight decay
  std::vector<Bfloat> value;
  std::vector<float> grad;
  std::size_t numel() const { return value.size(); }
};

class Model {
 public:
  Model(const Shape& shape, std::uint64_t seed, Workers& workers);

  const Shape& shape() const { return shape_; }
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::size_t parameter_count() const;

  // `contexts` holds targets.size() rows of `context` bytes. Both return the mean cross-entropy in
  // nats; backward also writes every gradient (of the mean).
  double loss(std::span<const std::uint8_t> contexts, std::span<const std::uint8_t> targets);
  double backward(std::span<const std::uint8_t> contexts, std::span<const std::uint8_t> targets);

  // Parameters as fp32 for the products; call it after parameters changed.
  void widen_parameters();
  // For finite differences: the fp32 values that the products use.
  std::span<float> wide(std::size_t parameter) { return wide_[parameter]; }

 private:
  struct Layer {
    std::size_t weight;  // index of the matrix; its bias follows
    std::size_t inputs;
    std::size_t outputs;
  };
  void add(const std::string& name, std::vector<std::uint64_t> shape, bool decays, double range,
           std::uint64_t seed);
  double forward(std::span<const std::uint8_t> contexts, std::span<const std::uint8_t> targets,
                 bool gradient);
  void embedding_gradient(std::span<const std::uint8_t> contexts, std::size_t batch);

  Shape shape_;
  Workers& workers_;
  Dense dense_;
  std::vector<Parameter> parameters_;
  std::vector<std::vector<float>> wide_;
  std::vector<Layer> stack_;                     // hidden layers and the last one
  std::vector<std::vector<float>> activations_;  // input of each layer, then the logits
  std::vector<float> row_loss_;
  std::vector<float> error_, next_error_;  // gradient of a layer's output and of its input
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_MODEL_H_
