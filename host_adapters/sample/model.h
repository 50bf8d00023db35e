// A byte-level language model, forward and backward by hand: the last `context` bytes, each
// embedded, go through `layers` hidden layers with ReLU to a softmax over the next byte. Parameters
// are bf16, gradients fp32; products and sums are fp32. This is what a trainer sees of it; the
// arithmetic is in cpu_model and cuda_model.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_MODEL_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "host_adapters/sample/bfloat.h"
#include "host_adapters/sample/device.h"
#include "host_adapters/sample/layout.h"

namespace millpond::sample {

class Model {
 public:
  // First values follow from seed, parameter and index alone. The device must outlive the model.
  Model(const Layout& layout, std::uint64_t seed, Device& device);
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const Layout& layout() const { return layout_; }
  Device& device() const { return device_; }

  // The flat buffers of a section, in the device's memory.
  Bfloat* values(std::size_t section) const { return values_[section].get(); }
  float* grads(std::size_t section) const { return grads_[section].get(); }
  Bfloat* value(const Piece& piece) const { return values(piece.section) + piece.offset; }
  float* grad(const Piece& piece) const { return grads(piece.section) + piece.offset; }
  // A whole parameter.
  Piece whole(std::size_t parameter) const;
  std::vector<Bfloat> download(std::size_t parameter) const;

  // `contexts` holds targets.size() rows of `context` bytes. Both return the cross-entropy in nats,
  // summed over the rows; backward also writes every gradient: of that sum divided by `step_rows`,
  // the rows of the whole step, of which these may be a part.
  virtual double loss(std::span<const std::uint8_t> contexts,
                      std::span<const std::uint8_t> targets) = 0;
  virtual double backward(std::span<const std::uint8_t> contexts,
                          std::span<const std::uint8_t> targets, std::size_t step_rows) = 0;
  // To be called after values changed: the products use copies of their own.
  virtual void values_changed() = 0;

 protected:
  // Hidden layers and the last one.
  struct Layer {
    std::size_t weight;  // index of the matrix; its bias follows
    std::size_t inputs;
    std::size_t outputs;
  };
  const std::vector<Layer>& stack() const { return stack_; }

 private:
  Layout layout_;
  Device& device_;
  std::array<Array<Bfloat>, Layout::kSections> values_;
  std::array<Array<float>, Layout::kSections> grads_;
  std::vector<Layer> stack_;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_MODEL_H_
