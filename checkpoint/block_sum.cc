#include "checkpoint/block_sum.h"

#include <bit>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace millpond::checkpoint {

static_assert(std::endian::native == std::endian::little, "the files are little endian");

std::uint64_t uid_seed(std::string_view uid) { return XXH3_64bits(uid.data(), uid.size()); }

std::uint64_t block_sum(std::uint64_t uid_seed, std::uint32_t bucket, std::uint32_t segment,
                        std::uint64_t block, const std::byte* bytes, std::uint64_t size) {
  // Hashing the place gives every place its own seed: no two can cancel out as with xor or sums.
  struct Place {
    std::uint64_t uid;
    std::uint32_t bucket, segment;
    std::uint64_t block;
  } const place{uid_seed, bucket, segment, block};
  static_assert(sizeof(Place) == 24, "hashed as it lies in memory");
  return XXH3_64bits_withSeed(bytes, size, XXH3_64bits(&place, sizeof place));
}

}  // namespace millpond::checkpoint
