// --compare: two models and their optimizers, byte by byte.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_COMPARISON_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_COMPARISON_H_

#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "host_adapters/sample/model.h"
#include "host_adapters/sample/optimizer.h"

namespace millpond::sample {

// A model and the optimizer that moves it. --compare has two.
struct Side {
  std::string name;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
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

// Both throw Different at the first byte. Values: of the whole model; states: of this rank's
// pieces.
void compare_values(const Side& left, const Side& right, std::uint64_t step);
void compare_states(Side& left, Side& right, std::uint64_t step);

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_COMPARISON_H_
