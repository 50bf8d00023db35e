#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_set>

#include "checkpoint/geometry.h"
#include "millpond/error.hpp"

namespace millpond::checkpoint {
namespace {

constexpr std::uint64_t kMaxElements = 1ull << 56;  // of a bucket: 12 bytes each fit 63 bits

class Check {
 public:
  Check(const Manifest& manifest, const std::string& path) : manifest_(manifest), path_(path) {}

  void run() const {
    if (manifest_.block_elements < kMinBlockElements ||
        manifest_.block_elements % kMinBlockElements != 0 ||
        manifest_.block_elements > kMaxElements) {
      throw wrong("block_elements", "not a multiple of 4096 from 4096 on")
          .want(kMinBlockElements, manifest_.block_elements);
    }
    if (manifest_.storage[0] != kernels::Storage::kFp32) {
      throw wrong("main", "mains are stored as fp32 in this version");
    }
    if (manifest_.buckets.size() > kMaxBuckets) {
      throw wrong("buckets", "too many").want(kMaxBuckets, manifest_.buckets.size());
    }
    std::unordered_set<std::uint64_t> groups;
    for (const GroupRecord& group : manifest_.groups) {
      if (!groups.insert(group.id).second) {
        throw wrong("groups", "group " + std::to_string(group.id) + " is there twice");
      }
    }
    for (std::uint32_t b = 0; b < manifest_.buckets.size(); ++b) bucket(b);
    for (std::size_t s = 0; s < manifest_.shards.size(); ++s) shard(s, groups);
    places();
    identities();
  }

 private:
  Error wrong(const std::string& field, const std::string& reason) const {
    return Error(MILLPOND_E_CORRUPT, "check manifest", reason).path(path_).field(field);
  }
  static std::string name(const char* list, std::uint64_t index) {
    return std::string(list) + "[" + std::to_string(index) + "]";
  }

  void bucket(std::uint32_t b) const {
    const BucketRecord& record = manifest_.buckets[b];
    if (record.elements == 0 || record.elements % kernels::kGroupElements != 0 ||
        record.elements > kMaxElements) {
      throw wrong(name("buckets", b) + ".elements", "not a positive multiple of 256 below 2^56")
          .want(kMaxElements, record.elements);
    }
    const BucketGeometry geometry = geometry_of(manifest_, b);
    if (record.file_bytes != geometry.file_bytes) {
      throw wrong(name("buckets", b) + ".bytes", "the file's size does not follow from the layout")
          .want(geometry.file_bytes, record.file_bytes);
    }
    for (std::uint32_t s = 0; s < kSegmentCount; ++s) {
      if (geometry.present[s] && record.segment_offset[s] != geometry.offset[s]) {
        throw wrong(name("buckets", b) + ".segment_offsets",
                    std::string(segment_name(s)) + " does not lie where the layout puts it")
            .want(geometry.offset[s], record.segment_offset[s]);
      }
    }
  }

  void shard(std::size_t i, const std::unordered_set<std::uint64_t>& groups) const {
    const ShardRecord& record = manifest_.shards[i];
    const std::string field = name("shards", i) + " " + record.key;
    const std::size_t dimensions = record.global_shape.size();
    if (record.key.empty()) throw wrong(field, "a shard without a key");
    if (record.box_offset.size() != dimensions || record.box_shape.size() != dimensions) {
      throw wrong(field, "the box has other dimensions than the parameter")
          .want(dimensions, record.box_shape.size());
    }
    std::uint64_t numel = 1;
    for (std::size_t d = 0; d < dimensions; ++d) {
      if (record.box_offset[d] > record.global_shape[d] ||
          record.box_shape[d] > record.global_shape[d] - record.box_offset[d]) {
        throw wrong(field, "the box leaves the parameter in dimension " + std::to_string(d))
            .want(record.global_shape[d], record.box_offset[d] + record.box_shape[d]);
      }
      if (__builtin_mul_overflow(numel, record.box_shape[d], &numel) || numel > INT64_MAX) {
        throw wrong(field, "the box has more elements than 63 bits count");
      }
    }
    if (record.flat_begin > record.flat_end || record.flat_end > numel) {
      throw wrong(field, "the flat range leaves the box").want(numel, record.flat_end);
    }
    if (!groups.contains(record.group_id)) {
      throw wrong(field,
                  "its group " + std::to_string(record.group_id) + " is not in the manifest");
    }
    if (record.flat_begin == record.flat_end) return;  // empty: it has no place
    if (record.bucket >= manifest_.buckets.size()) {
      throw wrong(field, "its bucket is not in the manifest")
          .want(manifest_.buckets.size(), record.bucket);
    }
    const BucketRecord& home = manifest_.buckets[record.bucket];
    if (record.moments_only != home.moments_only) throw wrong(field, "not of its bucket's kind");
    if (record.offset % kernels::kGroupElements != 0 || record.offset > home.elements ||
        record.flat_end - record.flat_begin > home.elements - record.offset) {
      throw wrong(field, "it does not lie inside its bucket").want(home.elements, record.offset);
    }
  }

  void places() const {
    std::vector<const ShardRecord*> order = filled();
    std::sort(order.begin(), order.end(), [](const ShardRecord* a, const ShardRecord* b) {
      return std::tie(a->bucket, a->offset) < std::tie(b->bucket, b->offset);
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const ShardRecord &a = *order[i - 1], &b = *order[i];
      if (a.bucket == b.bucket && a.offset + (a.flat_end - a.flat_begin) > b.offset) {
        throw wrong("shards " + a.key + ", " + b.key, "they overlap in their bucket")
            .want(a.offset + (a.flat_end - a.flat_begin), b.offset);
      }
    }
  }

  void identities() const {
    std::vector<const ShardRecord*> order = filled();
    const auto identity = [](const ShardRecord* r) {
      return std::tie(r->key, r->box_offset, r->box_shape, r->flat_begin);
    };
    std::sort(order.begin(), order.end(), [&](const ShardRecord* a, const ShardRecord* b) {
      return identity(a) < identity(b);
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const ShardRecord &a = *order[i - 1], &b = *order[i];
      if (a.key != b.key) continue;
      if (a.global_shape != b.global_shape) {
        throw wrong("shards " + a.key, "its shards have different global shapes");
      }
      if (a.box_offset == b.box_offset && a.box_shape == b.box_shape && a.flat_end > b.flat_begin) {
        throw wrong("shards " + a.key, "two of its shards hold the same elements")
            .want(a.flat_end, b.flat_begin);
      }
    }
  }

  std::vector<const ShardRecord*> filled() const {
    std::vector<const ShardRecord*> found;
    for (const ShardRecord& record : manifest_.shards) {
      if (record.flat_begin != record.flat_end) found.push_back(&record);
    }
    return found;
  }

  const Manifest& manifest_;
  const std::string& path_;
};

}  // namespace

void check_manifest(const Manifest& manifest, const std::string& path) {
  Check(manifest, path).run();
}

}  // namespace millpond::checkpoint
