// Where the bytes of a bucket lie in its file, from the manifest's numbers alone; and the checks
// that those numbers make sense together.
#ifndef MILLPOND_CHECKPOINT_GEOMETRY_H_
#define MILLPOND_CHECKPOINT_GEOMETRY_H_

#include <array>
#include <cstdint>
#include <string>

#include "checkpoint/manifest.h"

namespace millpond::checkpoint {

inline constexpr std::uint32_t kSegmentCount = 3;  // MILLPOND_SEGMENT_*
inline constexpr std::uint64_t kMinBlockElements = 4096;
inline constexpr std::uint64_t kMaxBuckets = 100'000;  // names have five digits

// "main", "exp_avg", "exp_avg_sq".
const char* segment_name(std::uint32_t segment);

struct BucketGeometry {
  std::uint64_t blocks = 0;                              // of each segment that is in the file
  std::array<bool, kSegmentCount> present{};             // segments in the file
  std::array<std::uint64_t, kSegmentCount> offset{};     // bytes in the file; 0 where absent
  std::array<std::uint64_t, kSegmentCount> bytes{};      // 0 where absent
  std::array<std::uint64_t, kSegmentCount> first_sum{};  // index in the sums file
  std::uint64_t file_bytes = 0;
  std::uint64_t sums = 0;  // entries of the sums file, 8 bytes each
};

// Uses elements, moments_only, moments_present of the bucket; elements as check_manifest allows.
BucketGeometry geometry_of(const Manifest& manifest, std::uint32_t bucket);
// Elements of a block of this bucket: block_elements, or fewer in the last one.
std::uint64_t elements_of_block(const Manifest& manifest, std::uint32_t bucket,
                                std::uint64_t block);
// Bytes from the segment's start to the block's.
std::uint64_t block_offset(const Manifest& manifest, std::uint32_t segment, std::uint64_t block);

// Everything that a manifest's numbers must keep among themselves: sizes that fit 63 bits, files as
// long as the geometry says, shards inside their buckets and boxes, apart from each other, of their
// bucket's kind, of a known group, each identity once. Throws Error(E_CORRUPT) naming what is
// wrong.
void check_manifest(const Manifest& manifest, const std::string& path);

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_GEOMETRY_H_
