// How much of a long list of cases a test takes: a part that is spread over all of it, or, in
// tests/campaign.sh, everything.
#ifndef MILLPOND_TESTS_STORE_CAMPAIGN_H_
#define MILLPOND_TESTS_STORE_CAMPAIGN_H_

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "tests/sanitized.h"

namespace millpond::tests {

// MILLPOND_CAMPAIGN=1 in the environment: everything.
inline bool in_campaign() {
  const char* value = std::getenv("MILLPOND_CAMPAIGN");  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr && *value == '1';
}

// `few` of the numbers below `all`, under sanitizers a fifth of them, in the campaign all. Steps
// that share no factor with `all` meet every residue of every divisor.
inline std::vector<std::uint64_t> some_of(std::uint64_t all, std::uint64_t few) {
  std::uint64_t count = in_campaign() ? all : kSanitized ? (few + 4) / 5 : few;
  if (count > all) count = all;
  std::uint64_t step = all * 618 / 1000 + 1;
  while (std::gcd(step, all) != 1) ++step;
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < count; ++i) numbers.push_back(i * step % all);
  return numbers;
}

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_STORE_CAMPAIGN_H_
