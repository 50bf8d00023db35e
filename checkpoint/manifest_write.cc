#include <fmt/format.h>

#include <span>

#include "checkpoint/geometry.h"
#include "checkpoint/strict_json.h"

namespace millpond::checkpoint {
namespace {

std::string list(std::span<const std::uint64_t> numbers) {
  std::string text = "[";
  for (const std::uint64_t number : numbers) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(number);
  }
  return text + "]";
}

const char* kind(bool moments_only) { return moments_only ? "moments_only" : "main_and_moments"; }

// An array with a row on each line, so that a person can read it and line tools can cut it.
template <typename Rows, typename Row>
void rows(std::string* text, const char* key, const Rows& records, Row row) {
  *text += fmt::format(",\n\"{}\": [", key);
  const char* before = "\n";
  for (const auto& record : records) {
    *text += before;
    *text += row(record);
    before = ",\n";
  }
  *text += "]";
}

std::string bucket_row(const BucketRecord& bucket) {
  std::vector<std::uint64_t> offsets;  // of the segments that are in the file
  if (!bucket.moments_only) offsets.push_back(bucket.segment_offset[0]);
  if (bucket.moments_present) {
    offsets.push_back(bucket.segment_offset[1]);
    offsets.push_back(bucket.segment_offset[2]);
  }
  return fmt::format(
      "{{\"elements\": {}, \"kind\": \"{}\", \"moments_present\": {}, \"bytes\": {}, "
      "\"segment_offsets\": {}, \"sums\": \"{}\"}}",
      bucket.elements, kind(bucket.moments_only), bucket.moments_present, bucket.file_bytes,
      list(offsets), bucket.sums_digest);
}

std::string shard_row(const ShardRecord& shard) {
  const std::uint64_t range[] = {shard.flat_begin, shard.flat_end};
  return fmt::format(
      "{{\"key\": {}, \"global_shape\": {}, \"box_offset\": {}, \"box_shape\": {}, "
      "\"flat_range\": {}, \"bucket\": {}, \"offset\": {}, \"group\": {}, \"kind\": \"{}\", "
      "\"step\": {}}}",
      quoted(shard.key), list(shard.global_shape), list(shard.box_offset), list(shard.box_shape),
      list(range), shard.bucket, shard.offset, shard.group_id, kind(shard.moments_only),
      shard.step);
}

}  // namespace

std::string writer_name() { return "millpond " MILLPOND_VERSION; }

std::string to_json(const Manifest& manifest) {
  std::string text = fmt::format(
      "{{\"format\": \"millpond-manifest\", \"version\": 1,\n\"writer\": {},\n\"uid\": {},\n"
      "\"step\": {},\n\"block_elements\": {},\n\"main\": \"{}\", \"exp_avg\": \"{}\", "
      "\"exp_avg_sq\": \"{}\"",
      quoted(manifest.writer), quoted(manifest.uid), manifest.step, manifest.block_elements,
      kernels::storage_name(manifest.storage[0]), kernels::storage_name(manifest.storage[1]),
      kernels::storage_name(manifest.storage[2]));
  rows(&text, "groups", manifest.groups, [](const GroupRecord& group) {
    return fmt::format("{{\"id\": {}, \"key\": {}}}", group.id, quoted(group.key));
  });
  rows(&text, "topology", manifest.topology, [](const AxisRecord& axis) {
    return fmt::format("{{\"name\": {}, \"rank\": {}, \"size\": {}}}", quoted(axis.name), axis.rank,
                       axis.size);
  });
  rows(&text, "buckets", manifest.buckets, bucket_row);
  rows(&text, "shards", manifest.shards, shard_row);
  text += "}\n";
  return text;
}

std::string bucket_file_name(std::uint32_t bucket) {
  return fmt::format("bucket{:05}.bin", bucket);
}
std::string sums_file_name(std::uint32_t bucket) { return fmt::format("bucket{:05}.sums", bucket); }

}  // namespace millpond::checkpoint
