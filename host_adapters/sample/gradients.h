// The gradients of one step: micro-batches computed by the ranks, summed so that neither the number
// of ranks nor which of them computed what changes a bit.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_GRADIENTS_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_GRADIENTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "host_adapters/sample/collective.h"
#include "host_adapters/sample/model.h"
#include "host_adapters/sample/text.h"

namespace millpond::sample {

// Empty where `micro_batches` can be divided among `ranks` so that every rank's sum is a whole
// branch of the one balanced tree over all of them; else what to do instead. One rank takes any.
std::string unfit_micro_batches(std::uint64_t micro_batches, std::uint32_t ranks);

class Gradients {
 public:
  // Model and collective must outlive it.
  Gradients(Model& model, Collective& ranks, std::size_t micro_batches);

  // Computes this rank's micro-batches of the step's batch and leaves the sum over all ranks of
  // this rank's range in the model's gradients (their mean over the batch); elsewhere they are
  // undefined. Returns the batch's mean cross-entropy in nats. Waits.
  double compute(const Text& text, const Batch& batch);

  // The global norm of what compute left on all ranks. Waits.
  double norm();

 private:
  void keep(std::size_t level);
  void add_kept(std::size_t level);

  Model& model_;
  Collective& ranks_;
  std::size_t micro_batches_;
  // kept_[level]: a sum of 2^level micro-batches that waits for its neighbour
  std::vector<std::array<Array<float>, Layout::kSections>> kept_;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_GRADIENTS_H_
