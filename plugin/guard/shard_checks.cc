#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "plugin/guard/checks.h"
#include "plugin/guard/codes.h"
#include "plugin/guard/geometry.h"

namespace millpond::plugin {
namespace {

constexpr bool is_16_bit(millpond_dtype dtype) {
  return dtype == MILLPOND_DTYPE_BF16 || dtype == MILLPOND_DTYPE_FP16;
}
constexpr bool is_supported(millpond_dtype dtype) {
  return is_16_bit(dtype) || dtype == MILLPOND_DTYPE_FP32;
}

// One shard's checks, with what every one of them needs.
class ShardCheck {
 public:
  ShardCheck(const Profile& profile, std::size_t index, Refusals& refusals)
      : shard_(profile.shards[index]),
        profile_(profile),
        index_(index),
        subject_(shard_.key.empty() ? fmt::format("shards[{}]", index) : shard_.key),
        refusals_(refusals) {}

  bool key() {
    const bool printable =
        !shard_.key.empty() && std::none_of(shard_.key.begin(), shard_.key.end(), [](char c) {
          return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
        });
    if (!printable)
      refuse(
          codes::kShardKeyInvalid, [] { return "has an empty key, or control characters in it"; },
          "Send the parameter's fully qualified name.");
    return printable;
  }

  void group(const std::unordered_set<std::uint64_t>& ids) {
    if (ids.contains(shard_.group_id)) return;
    refuse(
        codes::kGroupUnknown,
        [&] { return fmt::format("belongs to group {}, which is not listed", shard_.group_id); },
        "List every group that a shard names.");
  }

  void formats() {
    storage("parameter", shard_.model_storage);
    storage("gradient", shard_.grad_storage);
    const bool model = dtype("parameter", shard_.model_dtype);
    dtype("gradient", shard_.grad_dtype);
    kind(model);
  }

  bool geometry() {
    const Shard& s = shard_;
    if (s.box_offset.size() != s.global_shape.size() ||
        s.box_shape.size() != s.global_shape.size()) {
      refuse(
          codes::kShapeRankMismatch,
          [&] {
            return fmt::format("has {} dimensions, but {} box offsets and {} box sizes",
                               s.global_shape.size(), s.box_offset.size(), s.box_shape.size());
          },
          "Give the box one offset and one size for each dimension.");
      return false;
    }
    if (!element_count(s.global_shape)) {
      refuse(
          codes::kShapeOverflow, [] { return "has a shape of 2^63 elements or more"; },
          "Send the parameter's true shape.");
      return false;
    }
    for (std::size_t d = 0; d < s.global_shape.size(); ++d) {
      const std::uint64_t size = s.global_shape[d];
      if (s.box_shape[d] <= size && s.box_offset[d] <= size - s.box_shape[d]) continue;
      refuse(
          codes::kBoxOutsideShape,
          [&] {
            return fmt::format(
                "has a box that leaves the shape: offset {}, size {} of {} in "
                "dimension {}",
                s.box_offset[d], s.box_shape[d], size, d);
          },
          "Send this rank's part of the global shape.");
      return false;
    }
    // The box is inside the shape, so its elements can be counted.
    const std::uint64_t elements = *element_count(s.box_shape);
    if (s.flat_begin > s.flat_end || s.flat_end > elements) {
      refuse(
          codes::kRangeOutsideBox,
          [&] {
            return fmt::format("has the flat range {} to {} in a box of {} elements", s.flat_begin,
                               s.flat_end, elements);
          },
          "Count elements row-major in the box, begin not above end.");
      return false;
    }
    return true;
  }

  bool device() {
    const bool cpu = shard_.device_type == MILLPOND_DEVICE_CPU && shard_.device_id == 0;
    const bool cuda = shard_.device_type == MILLPOND_DEVICE_CUDA && shard_.device_id >= 0;
    if (cpu || cuda) return true;
    refuse(
        codes::kDeviceUnsupported,
        [&] {
          return fmt::format("is on device type {}, id {}", shard_.device_type, shard_.device_id);
        },
        "Use DLPack's numbers: type 1 (CPU, id 0) or type 2 (CUDA, id 0 or above).");
    return false;
  }

 private:
  template <typename What>
  void refuse(std::string_view code, What what, std::string_view remedy) {
    refusals_.add(
        code, subject_, [&] { return fmt::format("{} {}.", shard_name(profile_, index_), what()); },
        remedy);
  }

  void storage(std::string_view tensor, StorageClass storage) {
    if (storage == StorageClass::kDense) return;
    if (storage == StorageClass::kUnspecified) {
      refuse(
          codes::kStorageUnspecified,
          [&] { return fmt::format("does not say how its {} is stored", tensor); },
          "Send STORAGE_DENSE for plain elements; anything else cannot be streamed.");
      return;
    }
    refuse(
        codes::kStorageUnsupported,
        [&] {
          const char* name = storage == StorageClass::kQuantized ? "quantized"
                             : storage == StorageClass::kSparse
                                 ? "sparse"
                                 : "of a storage class that this version does not know";
          return fmt::format("has a {} that is {}", tensor, name);
        },
        "Stream dense tensors only; leave this parameter to the host's own optimizer.");
  }

  bool dtype(std::string_view tensor, millpond_dtype dtype) {
    if (is_supported(dtype)) return true;
    if (dtype == MILLPOND_DTYPE_NONE) {
      refuse(
          codes::kDtypeUnspecified,
          [&] { return fmt::format("does not state the dtype of its {}", tensor); },
          "Send the dtype in DLPack's numbers, as millpond/base.h packs them.");
    } else {
      refuse(
          codes::kDtypeUnsupported,
          [&] { return fmt::format("has a {} of dtype {}", tensor, dtype_text(dtype)); },
          "Parameters and gradients can be bf16, fp16 or fp32.");
    }
    return false;
  }

  void kind(bool model_supported) {
    if (shard_.kind != ShardKind::kMainAndMoments && shard_.kind != ShardKind::kMomentsOnly) {
      refuse(
          codes::kKindUnspecified, [] { return "is of no kind that this version knows"; },
          "Send KIND_MAIN_AND_MOMENTS for bf16 and fp16 parameters, KIND_MOMENTS_ONLY for fp32 "
          "ones.");
      return;
    }
    if (!model_supported) return;
    const bool with_main = shard_.kind == ShardKind::kMainAndMoments;
    if (with_main == is_16_bit(shard_.model_dtype)) return;
    refuse(
        codes::kKindDtypeMismatch,
        [&] {
          return fmt::format("is {}, with a parameter of {}",
                             with_main ? "main and moments" : "moments only",
                             dtype_text(shard_.model_dtype));
        },
        "A bf16 or fp16 parameter has a main beside it; an fp32 parameter is its own main "
        "(KIND_MOMENTS_ONLY).");
  }

  const Shard& shard_;
  const Profile& profile_;
  std::size_t index_;
  std::string subject_;
  Refusals& refusals_;
};

void check_ids(const Profile& profile, Refusals& refusals) {
  std::vector<std::pair<std::uint64_t, std::size_t>> ids;
  ids.reserve(profile.shards.size());
  for (std::size_t i = 0; i < profile.shards.size(); ++i) ids.emplace_back(profile.shards[i].id, i);
  std::sort(ids.begin(), ids.end());
  for (std::size_t i = 1; i < ids.size(); ++i) {
    if (ids[i].first != ids[i - 1].first) continue;
    refusals.add(
        codes::kShardIdDuplicate, profile.shards[ids[i].second].key,
        [&] {
          return fmt::format("Shards {} and {} have the same id {}.", ids[i - 1].second,
                             ids[i].second, ids[i].first);
        },
        "Give every shard of the store an id of its own.");
  }
}

void check_one_device(const Profile& profile, const std::vector<std::size_t>& with_device,
                      const GuardContext& context, Refusals& refusals) {
  const auto on_cuda = [&](std::size_t i) {
    return profile.shards[i].device_type == MILLPOND_DEVICE_CUDA;
  };
  if (!context.cuda_available && std::any_of(with_device.begin(), with_device.end(), on_cuda))
    refusals.add(codes::kCudaUnavailable, "shards",
                 "There are shards on CUDA, and this build or this machine cannot serve them" +
                     (context.cuda_refusal.empty() ? "." : ": " + context.cuda_refusal + "."),
                 "Use a build with CUDA on a machine with a driver, or bind CPU tensors.");
  for (const std::size_t i : with_device) {
    const Shard& first = profile.shards[with_device.front()];
    const Shard& other = profile.shards[i];
    if (other.device_type == first.device_type && other.device_id == first.device_id) continue;
    refusals.add(
        codes::kDeviceMixed, "shards",
        [&] {
          return fmt::format("{} is on device type {}, id {}, but {} on type {}, id {}.",
                             shard_name(profile, with_device.front()), first.device_type,
                             first.device_id, shard_name(profile, i), other.device_type,
                             other.device_id);
        },
        "Make one store for each device.");
    return;
  }
}

}  // namespace

std::vector<std::size_t> check_shards(const Profile& profile, const GuardContext& context,
                                      Refusals& refusals) {
  std::unordered_set<std::uint64_t> groups;
  for (const Group& group : profile.groups) groups.insert(group.id);
  std::vector<std::size_t> sound;
  std::vector<std::size_t> with_device;
  sound.reserve(profile.shards.size());
  with_device.reserve(profile.shards.size());
  for (std::size_t i = 0; i < profile.shards.size(); ++i) {
    ShardCheck check(profile, i, refusals);
    const bool key = check.key();
    check.group(groups);
    check.formats();
    if (check.geometry() && key) sound.push_back(i);
    if (check.device()) with_device.push_back(i);
  }
  check_ids(profile, refusals);
  check_one_device(profile, with_device, context, refusals);
  return sound;
}

}  // namespace millpond::plugin
