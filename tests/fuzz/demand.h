// A fuzz target's own checks: a failed one stops the process, which the fuzzer reports with the
// input that did it.
#ifndef MILLPOND_TESTS_FUZZ_DEMAND_H_
#define MILLPOND_TESTS_FUZZ_DEMAND_H_

#include <cstdlib>

namespace millpond::fuzz {

inline void demand(bool condition) {
  if (!condition) std::abort();
}

}  // namespace millpond::fuzz

#endif  // MILLPOND_TESTS_FUZZ_DEMAND_H_
