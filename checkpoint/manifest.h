// manifest.json: what one store wrote. Read strictly (size, depth and count caps, duplicate keys,
// unknown or missing keys are errors) and never trusted: names of files follow from numbers, sizes
// from the layout.
#ifndef MILLPOND_CHECKPOINT_MANIFEST_H_
#define MILLPOND_CHECKPOINT_MANIFEST_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/storage.h"

namespace millpond::checkpoint {

struct ShardRecord {
  std::string key;
  std::vector<std::uint64_t> global_shape, box_offset, box_shape;
  std::uint64_t flat_begin = 0, flat_end = 0;
  std::uint32_t bucket = 0;
  std::uint64_t offset = 0;  // elements in the bucket
  std::uint64_t group_id = 0;
  bool moments_only = false;
  std::uint64_t step = 0;
};
struct BucketRecord {
  std::uint64_t elements = 0;
  std::uint64_t file_bytes = 0;
  bool moments_only = false;
  bool moments_present = false;
  std::array<std::uint64_t, 3> segment_offset{};
  std::string sums_digest;  // XXH3-128 of the .sums file, 32 hexadecimal digits
};
struct GroupRecord {
  std::uint64_t id = 0;
  std::string key;
};
struct AxisRecord {
  std::string name;
  std::uint32_t rank = 0, size = 0;
};
struct Manifest {
  std::string writer;  // "millpond 0.1.0"
  std::string uid;
  std::uint64_t step = 0;  // completed steps of the store
  std::uint64_t block_elements = 0;
  std::array<kernels::Storage, 3> storage{};
  std::vector<GroupRecord> groups;
  std::vector<AxisRecord> topology;
  std::vector<BucketRecord> buckets;
  std::vector<ShardRecord> shards;
};

// "millpond" and this build's version.
std::string writer_name();

std::string to_json(const Manifest& manifest);
// Throws Error(E_CORRUPT, path, at the byte) for anything that is not a manifest of this format
// version.
Manifest parse_manifest(std::string_view json, const std::string& path);

// "bucket00007.bin", "bucket00007.sums".
std::string bucket_file_name(std::uint32_t bucket);
std::string sums_file_name(std::uint32_t bucket);

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_MANIFEST_H_
