// One training run: model, optimizer, text, and the ranks that share them.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_TRAINER_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_TRAINER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "host_adapters/sample/arguments.h"
#include "host_adapters/sample/optimizer.h"
#include "host_adapters/sample/place.h"
#include "host_adapters/sample/progress.h"

namespace millpond::sample {

struct Evaluation {
  std::uint64_t step;
  double bits_per_byte;
};

// What one optimizer cost this rank.
struct Costs {
  std::vector<double> step_seconds;       // gradients, update, exchange of parameters
  std::vector<double> optimizer_seconds;  // the update alone
  StepCost first;                         // of this process: mains only, where it began with step 1
  StepCost last;
  std::uint64_t resident_bytes = 0;  // of state
  std::string description;
};

// What one rank's last optimizer (the streamed one, where there is one) cost, as told to all ranks.
struct RankFigures {
  double optimizer_seconds = 0.0;  // median
  std::uint64_t bytes_read = 0;    // in the last step
  std::uint64_t bytes_written = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t device_bytes = 0;  // in use on its device, whoever took them
  char bound_by[40] = {};          // what its last step waited for longest
};

struct RunResult {
  std::uint64_t first_step = 1;
  std::uint64_t skipped = 0;  // steps with a gradient that was not finite
  std::vector<Evaluation> evaluations;
  double bigram_bits_per_byte = 0.0;
  std::size_t evaluated_bytes = 0;
  std::vector<std::string> names;       // of the optimizers: "resident", "streamed"
  std::vector<Costs> costs;             // one each
  std::vector<RankFigures> ranks;       // by rank
  std::string place;                    // devices and collective, in words
  std::string digest;                   // of the final parameters
  std::vector<float> final_parameters;  // widened, in order
  std::size_t parameters = 0;
  std::size_t text_bytes = 0;
};

// Runs what the arguments ask for, together with the other ranks of the place. Throws Error, or
// Different from --compare.
RunResult train(const Arguments& arguments, const Place& place, Progress& progress);

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_TRAINER_H_
