// The host's profile as the plugin sees it: handshake.proto's messages read with protozero, without
// judgement.
#ifndef MILLPOND_PLUGIN_GUARD_PROFILE_H_
#define MILLPOND_PLUGIN_GUARD_PROFILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "millpond/host.h"

namespace millpond::plugin {

// kUnknown, here and below: a value that this version does not know. No rule accepts it.
enum class FeatureState : std::uint8_t { kNotEvaluated, kInactive, kActive, kUnknown = 255 };
struct Feature {
  std::string name;
  FeatureState state = FeatureState::kNotEvaluated;
  std::string detail;
};
struct Axis {
  std::string name;
  std::uint32_t rank = 0, size = 0;
};
struct Group {
  std::uint64_t id = 0;
  std::string key;
  bool counter_per_group = false;
  bool counter_known = true;  // false: a Counter that this version does not know; refused
};
enum class StorageClass : std::uint8_t {
  kUnspecified,
  kDense,
  kQuantized,
  kSparse,
  kUnknown = 255
};
enum class ShardKind : std::uint8_t { kUnspecified, kMainAndMoments, kMomentsOnly, kUnknown = 255 };
struct Shard {
  std::uint64_t id = 0;
  std::string key;
  std::vector<std::uint64_t> global_shape, box_offset, box_shape;
  std::uint64_t flat_begin = 0, flat_end = 0;
  std::uint64_t group_id = 0, host_bucket = 0;
  ShardKind kind = ShardKind::kUnspecified;
  millpond_dtype model_dtype = 0, grad_dtype = 0;
  StorageClass model_storage = StorageClass::kUnspecified,
               grad_storage = StorageClass::kUnspecified;
  std::int32_t device_type = 0, device_id = 0;
  std::uint64_t numel() const { return flat_end - flat_begin; }
};
struct Profile {
  std::string framework, framework_version, adapter, adapter_version;
  std::string optimizer_class;
  std::uint32_t optimizer_family = 0;  // handshake.proto's Family
  std::string arithmetic;
  std::vector<Axis> topology;
  std::uint64_t config_epoch = 0;
  std::vector<Feature> features;
  std::vector<Group> groups;
  std::vector<Shard> shards;
};

// Throws Error(E_ARGUMENT, field "bind_args.profile") with the byte offset when the bytes are not a
// HostProfile. Unknown fields are skipped. Caps: 1 GiB, 10 M shards, 1 M groups, 4096 features, 64
// axes, 8 dimensions, strings of 4096 bytes. Memory stays within a fixed multiple of `size`.
Profile read_profile(const void* bytes, std::uint64_t size);

// Decides a bind. Everything that is wrong is listed, not the first. Codes: plugin/guard/codes.h.
struct Refusal {
  std::string code, subject, reason, remedy;
};
struct GuardContext {
  std::uint32_t minor = 0;  // negotiated
  bool has_update = false;  // host callbacks that some profiles need
  bool has_copy_main = false;
  bool cuda_available = false;  // this build and machine can serve CUDA shards
  std::string cuda_refusal;     // else why not, as a sentence without its end
};
// Profile alone: features, family, arithmetic, storage classes, dtypes, identities (unique ids and
// keys+ranges, boxes inside global shapes, ranges inside boxes, no overlap), groups, one device.
std::vector<Refusal> judge(const Profile& profile, const GuardContext& context);

// Profile against the C arguments: ids, numel, dtypes, devices agree; pointers present and aligned
// to their element. Throws Error(E_ARGUMENT) with field "bind_args.shards[i].model.numel" or the
// like: the first one, nothing changed.
void check_pointers(const Profile& profile, const std::vector<millpond_shard_pointers>& pointers,
                    bool has_copy_main);

// What goes into a BindReport.
struct PlanReport {
  std::uint64_t shards = 0, elements = 0, buckets = 0, tiles = 0, tile_elements = 0,
                block_elements = 0;
  struct Directory {
    std::string path;
    std::uint64_t bytes = 0;
    bool direct = false;
  };
  std::vector<Directory> directories;
  std::uint64_t host_bytes = 0, device_bytes = 0;
  std::string engine, engine_reason;
  std::uint64_t read_bytes_per_step = 0, write_bytes_per_step = 0;
  double drive_bytes_per_second = 0;
  std::string drive_source;
  double expected_seconds_per_step = 0;
  std::uint64_t tier_tiles = 0, shards_kept = 0;
};
// Serialized millpond.v1.BindReport; plan NULL when refused.
std::string write_report(const std::vector<Refusal>& refusals, const PlanReport* plan);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_GUARD_PROFILE_H_
