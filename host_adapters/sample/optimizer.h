// What a training loop asks of an optimizer, whether its state is in memory or streamed.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_OPTIMIZER_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "host_adapters/sample/schedule.h"
#include "millpond/report.h"

namespace millpond::sample {

enum class Part : std::uint8_t { kMain, kExpAvg, kExpAvgSq };

// What one step needs beside the gradients, which lie in the model.
struct StepInput {
  double lr;
  float grad_scale;  // gradients are divided by it
  bool found_inf;    // nothing moves
};

struct StepCost {
  double seconds = 0.0;
  std::uint64_t bytes_read = 0;  // from files
  std::uint64_t bytes_written = 0;
  millpond_step_figures figures = {};  // of a streamed step
};

class Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  virtual StepCost step(const StepInput& input) = 0;
  // Elements [begin, begin + values.size()) of a parameter's main or moment.
  virtual void read(std::size_t parameter, Part part, std::size_t begin,
                    std::span<float> values) = 0;
  virtual std::uint64_t resident_bytes() = 0;  // of state held in memory
  virtual std::string description() = 0;

  // One file or directory at `path`. A loaded state writes the model's parameters as well.
  virtual void save(const std::filesystem::path& path) = 0;
  virtual void load(const std::filesystem::path& path) = 0;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_OPTIMIZER_H_
