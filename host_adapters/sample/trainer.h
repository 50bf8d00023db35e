// One training run: model, optimizer, text.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_TRAINER_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_TRAINER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "host_adapters/sample/arguments.h"
#include "host_adapters/sample/model.h"
#include "host_adapters/sample/optimizer.h"
#include "host_adapters/sample/progress.h"
#include "host_adapters/sample/text.h"

namespace millpond::sample {

struct Evaluation {
  std::uint64_t step;
  double bits_per_byte;
};

// What one optimizer cost.
struct Costs {
  std::vector<double> step_seconds;       // gradients and update
  std::vector<double> optimizer_seconds;  // the update alone
  StepCost first;                         // of this process: mains only, where it began with step 1
  StepCost last;
  std::uint64_t resident_bytes = 0;  // of state
  std::string description;
};

struct RunResult {
  std::uint64_t first_step = 1;
  std::uint64_t skipped = 0;  // steps with a gradient that was not finite
  std::vector<Evaluation> evaluations;
  double bigram_bits_per_byte = 0.0;
  std::size_t evaluated_bytes = 0;
  std::vector<std::string> names;       // of the optimizers: "resident", "streamed"
  std::vector<Costs> costs;             // one each
  std::string digest;                   // of the final parameters
  std::vector<float> final_parameters;  // widened, in order
  std::size_t parameters = 0;
  std::size_t text_bytes = 0;
};

// The bytes differ that must not.
struct Difference {
  std::string parameter;
  std::string part;  // "parameter", "main", "exp_avg", "exp_avg_sq"
  std::size_t index;
  std::uint64_t step;
  std::string values;
};

class Different : public std::exception {
 public:
  explicit Different(const Difference& difference);
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

// Mean bits per byte of the model at these places.
double evaluate(Model& model, const Text& text, const std::vector<std::size_t>& places);

// "0123..." XXH3-128 of all parameters in order.
std::string digest(const Model& model);

// Runs what the arguments ask for. Throws Error, or Different from --compare.
RunResult train(const Arguments& arguments, Progress& progress);

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_TRAINER_H_
