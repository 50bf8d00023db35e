#include "checkpoint/geometry.h"

namespace millpond::checkpoint {

const char* segment_name(std::uint32_t segment) {
  constexpr const char* kNames[] = {"main", "exp_avg", "exp_avg_sq"};
  return kNames[segment];
}

BucketGeometry geometry_of(const Manifest& manifest, std::uint32_t bucket) {
  const BucketRecord& record = manifest.buckets[bucket];
  BucketGeometry geometry;
  geometry.blocks = (record.elements + manifest.block_elements - 1) / manifest.block_elements;
  geometry.present = {!record.moments_only, record.moments_present, record.moments_present};
  for (std::uint32_t s = 0; s < kSegmentCount; ++s) {
    if (!geometry.present[s]) continue;
    geometry.offset[s] = geometry.file_bytes;
    geometry.bytes[s] =
        kernels::run_bytes(manifest.storage[s], record.elements, manifest.block_elements);
    geometry.first_sum[s] = geometry.sums;
    geometry.file_bytes += geometry.bytes[s];
    geometry.sums += geometry.blocks;
  }
  return geometry;
}

std::uint64_t elements_of_block(const Manifest& manifest, std::uint32_t bucket,
                                std::uint64_t block) {
  const std::uint64_t begin = block * manifest.block_elements;
  const std::uint64_t left = manifest.buckets[bucket].elements - begin;
  return left < manifest.block_elements ? left : manifest.block_elements;
}

std::uint64_t block_offset(const Manifest& manifest, std::uint32_t segment, std::uint64_t block) {
  return block * kernels::block_bytes(manifest.storage[segment], manifest.block_elements);
}

}  // namespace millpond::checkpoint
