// Numbers that depend on their place only: the n-th number of a seed can be had without those
// before, so a resumed run sees the data that an uninterrupted one would.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_RANDOM_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_RANDOM_H_

#include <cstdint>

namespace millpond::sample {

// A bijective mixing of 64 bits in which every input bit reaches every output bit.
inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

inline std::uint64_t random_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return mix(mix(mix(seed) ^ stream) ^ index);
}

// Evenly in [-1, 1).
inline double signed_unit_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return static_cast<double>(random_at(seed, stream, index) >> 11) * 0x1p-52 - 1.0;
}

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_RANDOM_H_
