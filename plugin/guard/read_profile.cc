#include <algorithm>

#include "millpond/error.hpp"
#include "plugin/guard/profile.h"
#include "plugin/guard/wire_reader.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kMaxBytes = 1ull << 30;
constexpr std::uint64_t kMaxShards = 10'000'000;
constexpr std::uint64_t kMaxGroups = 1'000'000;
constexpr std::uint64_t kMaxFeatures = 4096;
constexpr std::uint64_t kMaxAxes = 64;
constexpr std::uint64_t kMaxDimensions = 8;
constexpr std::uint64_t kMaxString = 4096;

// Enums travel as int32. What this version does not know becomes `unknown`, which no rule accepts.
template <typename Enum>
Enum to_enum(std::uint64_t value, Enum last, Enum unknown) {
  const auto number = static_cast<std::int32_t>(value);
  return number >= 0 && number <= static_cast<std::int32_t>(last) ? static_cast<Enum>(number)
                                                                  : unknown;
}

// protobuf merges a message field that comes twice; so do we, into the same members.
void read_optimizer(WireReader reader, Profile& profile) {
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        profile.optimizer_class = reader.string(kMaxString);
        break;
      case 2:
        profile.optimizer_family = static_cast<std::uint32_t>(reader.varint());
        break;
      default:
        break;
    }
  }
}

Axis read_axis(WireReader reader) {
  Axis axis;
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        axis.name = reader.string(kMaxString);
        break;
      case 2:
        axis.rank = static_cast<std::uint32_t>(reader.varint());
        break;
      case 3:
        axis.size = static_cast<std::uint32_t>(reader.varint());
        break;
      default:
        break;
    }
  }
  return axis;
}

Feature read_feature(WireReader reader) {
  Feature feature;
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        feature.name = reader.string(kMaxString);
        break;
      case 2:
        feature.state = to_enum(reader.varint(), FeatureState::kActive, FeatureState::kUnknown);
        break;
      case 3:
        feature.detail = reader.string(kMaxString);
        break;
      default:
        break;
    }
  }
  return feature;
}

Group read_group(WireReader reader) {
  Group group;
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        group.id = reader.varint();
        break;
      case 2:
        group.key = reader.string(kMaxString);
        break;
      case 3: {
        const auto counter = static_cast<std::int32_t>(reader.varint());
        group.counter_per_group = counter == 1;
        group.counter_known = counter == 0 || counter == 1;
        break;
      }
      default:
        break;
    }
  }
  return group;
}

Shard read_shard(WireReader reader) {
  Shard shard;
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        shard.id = reader.varint();
        break;
      case 2:
        shard.key = reader.string(kMaxString);
        break;
      case 3:
        reader.append_varints(shard.global_shape, kMaxDimensions);
        break;
      case 4:
        reader.append_varints(shard.box_offset, kMaxDimensions);
        break;
      case 5:
        reader.append_varints(shard.box_shape, kMaxDimensions);
        break;
      case 6:
        shard.flat_begin = reader.varint();
        break;
      case 7:
        shard.flat_end = reader.varint();
        break;
      case 8:
        shard.group_id = reader.varint();
        break;
      case 9:
        shard.host_bucket = reader.varint();
        break;
      case 10:
        shard.kind = to_enum(reader.varint(), ShardKind::kMomentsOnly, ShardKind::kUnknown);
        break;
      case 11:
        shard.model_dtype = static_cast<millpond_dtype>(reader.varint());
        break;
      case 12:
        shard.grad_dtype = static_cast<millpond_dtype>(reader.varint());
        break;
      case 13:
        shard.model_storage =
            to_enum(reader.varint(), StorageClass::kSparse, StorageClass::kUnknown);
        break;
      case 14:
        shard.grad_storage =
            to_enum(reader.varint(), StorageClass::kSparse, StorageClass::kUnknown);
        break;
      case 15:
        shard.device_type = static_cast<std::int32_t>(reader.varint());
        break;
      case 16:
        shard.device_id = static_cast<std::int32_t>(reader.varint());
        break;
      default:
        break;
    }
  }
  return shard;
}

// Counts before anything is kept, so that memory is reserved once and the caps hold early.
struct Counts {
  std::uint64_t axes = 0, features = 0, groups = 0, shards = 0;
};

Counts count_fields(WireReader reader) {
  Counts counts;
  const auto count = [&reader](std::uint64_t& counter, std::uint64_t cap, const char* what) {
    if (++counter > cap) reader.fail(std::string("there are too many ") + what, cap, counter);
  };
  while (reader.next()) {
    switch (reader.tag()) {
      case 7:
        count(counts.axes, kMaxAxes, "axes");
        break;
      case 9:
        count(counts.features, kMaxFeatures, "features");
        break;
      case 10:
        count(counts.groups, kMaxGroups, "groups");
        break;
      case 11:
        count(counts.shards, kMaxShards, "shards");
        break;
      default:
        break;
    }
  }
  return counts;
}

}  // namespace

Profile read_profile(const void* bytes, std::uint64_t size) {
  if (bytes == nullptr && size != 0)
    throw Error(MILLPOND_E_ARGUMENT, "read profile", "the pointer is NULL")
        .field("bind_args.profile")
        .want(size, 0)
        .remedy("Point it at the serialized HostProfile");
  if (size > kMaxBytes)
    throw Error(MILLPOND_E_ARGUMENT, "read profile", "the profile is larger than any store needs")
        .field("bind_args.profile_bytes")
        .want(kMaxBytes, size)
        .remedy("Check the length; a profile has about 100 bytes a shard");

  WireReader reader("HostProfile", bytes, size);
  const Counts counts = count_fields(reader);
  Profile profile;
  profile.topology.reserve(counts.axes);
  profile.features.reserve(counts.features);
  profile.groups.reserve(counts.groups);
  profile.shards.reserve(counts.shards);
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        profile.framework = reader.string(kMaxString);
        break;
      case 2:
        profile.framework_version = reader.string(kMaxString);
        break;
      case 3:
        profile.adapter = reader.string(kMaxString);
        break;
      case 4:
        profile.adapter_version = reader.string(kMaxString);
        break;
      case 5:
        read_optimizer(reader.message("Optimizer"), profile);
        break;
      case 6:
        profile.arithmetic = reader.string(kMaxString);
        break;
      case 7:
        profile.topology.push_back(read_axis(reader.message("Axis")));
        break;
      case 8:
        profile.config_epoch = reader.varint();
        break;
      case 9:
        profile.features.push_back(read_feature(reader.message("Feature")));
        break;
      case 10:
        profile.groups.push_back(read_group(reader.message("Group")));
        break;
      case 11:
        profile.shards.push_back(read_shard(reader.message("Shard")));
        break;
      default:
        break;
    }
  }
  return profile;
}

}  // namespace millpond::plugin
