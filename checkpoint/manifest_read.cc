#include "checkpoint/geometry.h"
#include "checkpoint/strict_json.h"

namespace millpond::checkpoint {
namespace {

constexpr std::string_view kManifestKeys[] = {"format",
                                              "version",
                                              "writer",
                                              "uid",
                                              "step",
                                              "block_elements",
                                              "main",
                                              "exp_avg",
                                              "exp_avg_sq",
                                              "groups",
                                              "topology",
                                              "buckets",
                                              "shards",
                                              "id",
                                              "key",
                                              "name",
                                              "rank",
                                              "size",
                                              "elements",
                                              "kind",
                                              "bytes",
                                              "sums",
                                              "moments_present",
                                              "segment_offsets",
                                              "global_shape",
                                              "box_offset",
                                              "box_shape",
                                              "flat_range",
                                              "bucket",
                                              "offset",
                                              "group"};
constexpr std::uint32_t kMaxDimensions = 8;

bool moments_only(JsonObject& row) {
  const std::string kind = row.text("kind");
  if (kind != "moments_only" && kind != "main_and_moments") {
    throw row.corrupt("an unknown kind \"" + kind.substr(0, 40) + "\"");
  }
  return kind == "moments_only";
}

void read_group(JsonObject& row, Manifest* manifest) {
  manifest->groups.push_back({row.number("id"), row.text("key")});
}

void read_axis(JsonObject& row, Manifest* manifest) {
  manifest->topology.push_back({row.text("name"),
                                static_cast<std::uint32_t>(row.number("rank", UINT32_MAX)),
                                static_cast<std::uint32_t>(row.number("size", UINT32_MAX))});
}

void read_bucket(JsonObject& row, Manifest* manifest) {
  BucketRecord bucket;
  bucket.elements = row.number("elements");
  bucket.moments_only = moments_only(row);
  bucket.moments_present = row.boolean("moments_present");
  bucket.file_bytes = row.number("bytes");
  bucket.sums_digest = row.digest("sums");
  const std::vector<std::uint64_t> offsets = row.numbers("segment_offsets", kSegmentCount);
  std::size_t next = 0;
  for (std::uint32_t s = 0; s < kSegmentCount; ++s) {
    if (s == 0 ? bucket.moments_only : !bucket.moments_present) continue;
    if (next == offsets.size()) throw row.corrupt("a segment's offset is missing");
    bucket.segment_offset[s] = offsets[next++];
  }
  if (next != offsets.size()) throw row.corrupt("an offset for a segment that is not in the file");
  manifest->buckets.push_back(std::move(bucket));
}

void read_shard(JsonObject& row, Manifest* manifest) {
  ShardRecord shard;
  shard.key = row.text("key");
  shard.global_shape = row.numbers("global_shape", kMaxDimensions);
  shard.box_offset = row.numbers("box_offset", kMaxDimensions);
  shard.box_shape = row.numbers("box_shape", kMaxDimensions);
  const std::vector<std::uint64_t> range = row.numbers("flat_range", 2);
  if (range.size() != 2) throw row.corrupt("flat_range has not two numbers");
  shard.flat_begin = range[0];
  shard.flat_end = range[1];
  shard.bucket = static_cast<std::uint32_t>(row.number("bucket", UINT32_MAX));
  shard.offset = row.number("offset");
  shard.group_id = row.number("group");
  shard.moments_only = moments_only(row);
  shard.step = row.number("step");
  manifest->shards.push_back(std::move(shard));
}

kernels::Storage read_storage(JsonObject& whole, std::uint32_t segment) {
  const std::string name = whole.text(segment_name(segment));
  kernels::Storage storage{};
  if (!kernels::parse_storage(name.data(), name.size(), &storage)) {
    throw whole.corrupt("an unknown storage format \"" + name.substr(0, 40) + "\"");
  }
  return storage;
}

}  // namespace

Manifest parse_manifest(std::string_view json, const std::string& path) {
  check_format(json, path, "millpond-manifest");
  Manifest manifest;
  const auto row = [&](std::string_view key, JsonObject& object) {
    if (key == "shards") {
      read_shard(object, &manifest);
    } else if (key == "buckets") {
      read_bucket(object, &manifest);
    } else if (key == "groups") {
      read_group(object, &manifest);
    } else if (key == "topology") {
      read_axis(object, &manifest);
    } else {
      throw object.corrupt("a row where none belongs");
    }
    object.done();
  };
  const auto whole = [&](JsonObject& object) {
    object.text("format");
    object.number("version");
    manifest.writer = object.text("writer");
    manifest.uid = object.text("uid");
    manifest.step = object.number("step");
    manifest.block_elements = object.number("block_elements");
    for (std::uint32_t s = 0; s < kSegmentCount; ++s) manifest.storage[s] = read_storage(object, s);
    for (const char* key : {"groups", "topology", "buckets", "shards"}) object.rows(key);
    object.done();
  };
  read_strict_json(json, path, kManifestKeys, row, whole);
  check_manifest(manifest, path);
  return manifest;
}

}  // namespace millpond::checkpoint
