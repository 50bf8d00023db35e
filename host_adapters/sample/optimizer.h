// What a training loop asks of an optimizer, whether its state is in memory or streamed. It moves
// what its rank owns of the model: `pieces`, section after section.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_OPTIMIZER_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host_adapters/sample/layout.h"
#include "host_adapters/sample/schedule.h"

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
  std::string bound_by;  // what the step waited for longest
};

class Optimizer {
 public:
  explicit Optimizer(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  const std::vector<Piece>& pieces() const { return pieces_; }

  virtual StepCost step(const StepInput& input) = 0;
  // Elements [begin, begin + values.size()) of a piece's main or moment.
  virtual void read(std::size_t piece, Part part, std::size_t begin, std::span<float> values) = 0;
  virtual std::uint64_t resident_bytes() = 0;  // of state held in memory, the device's included
  virtual std::string description() = 0;

  // One file or directory at `path`, of all ranks together. A loaded state writes the pieces'
  // values in the model as well.
  virtual void save(const std::filesystem::path& path) = 0;
  virtual void load(const std::filesystem::path& path) = 0;

 private:
  std::vector<Piece> pieces_;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_OPTIMIZER_H_
