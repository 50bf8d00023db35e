// What a model is worth, and which one it is.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_EVALUATION_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_EVALUATION_H_

#include <cstddef>
#include <string>
#include <vector>

#include "host_adapters/sample/collective.h"
#include "host_adapters/sample/model.h"
#include "host_adapters/sample/text.h"

namespace millpond::sample {

// Mean bits per byte of the model at these places. The ranks share the work; all get the answer.
double evaluate(Model& model, const Text& text, const std::vector<std::size_t>& places,
                Collective& ranks);

// "0123..." XXH3-128 of all parameters in order. Throws Error(E_MISMATCH) where the ranks' models
// differ.
std::string digest(const Model& model, Collective& ranks);

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_EVALUATION_H_
