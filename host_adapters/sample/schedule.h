// Hyperparameters and the learning rate of a step.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_SCHEDULE_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_SCHEDULE_H_

#include <cstdint>

namespace millpond::sample {

struct Hyperparameters {
  double lr = 5e-3;           // at the end of the warm-up
  double final_lr = 0.05;     // a share of lr, reached in the last step
  std::uint64_t warmup = 40;  // steps
  double beta1 = 0.9;
  double beta2 = 0.99;
  double eps = 1e-8;
  double weight_decay = 0.1;  // of the group that decays; decoupled
  double clip = 1.0;          // largest global norm of the gradient; 0: no clipping
};

// Linear warm-up, then half a cosine. `step` counts from 1 to `steps`.
double learning_rate(const Hyperparameters& hyper, std::uint64_t step, std::uint64_t steps);

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_SCHEDULE_H_
