#include "host_adapters/sample/schedule.h"

#include <cmath>
#include <numbers>

namespace millpond::sample {

double learning_rate(const Hyperparameters& hyper, std::uint64_t step, std::uint64_t steps) {
  if (step <= hyper.warmup) {
    return hyper.lr * static_cast<double>(step) / static_cast<double>(hyper.warmup);
  }
  if (steps <= hyper.warmup) return hyper.lr;
  const double done =
      static_cast<double>(step - hyper.warmup) / static_cast<double>(steps - hyper.warmup);
  const double share = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return hyper.lr * (hyper.final_lr + (1.0 - hyper.final_lr) * share);
}

}  // namespace millpond::sample
