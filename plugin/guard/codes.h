// The machine-readable reasons of refusals. Stable: hosts and their operators match on them. What
// each means is in plugin/guard/README.md.
#ifndef MILLPOND_PLUGIN_GUARD_CODES_H_
#define MILLPOND_PLUGIN_GUARD_CODES_H_

#include <array>
#include <string_view>

namespace millpond::plugin::codes {

inline constexpr char kFeatureActive[] = "feature_active";
inline constexpr char kFeatureUnknown[] = "feature_unknown";
inline constexpr char kFeatureNotEvaluated[] = "feature_not_evaluated";
inline constexpr char kFeatureDuplicate[] = "feature_duplicate";
inline constexpr char kFeatureStateUnknown[] = "feature_state_unknown";
inline constexpr char kFeatureRequires[] = "feature_requires";
inline constexpr char kFamilyUnspecified[] = "family_unspecified";
inline constexpr char kFamilyUnsupported[] = "family_unsupported";
inline constexpr char kArithmeticUnknown[] = "arithmetic_unknown";
inline constexpr char kArithmeticUnsupported[] = "arithmetic_unsupported";
inline constexpr char kUpdateCallbackMissing[] = "update_callback_missing";
inline constexpr char kAxisInvalid[] = "axis_invalid";
inline constexpr char kAxisDuplicate[] = "axis_duplicate";
inline constexpr char kGroupDuplicate[] = "group_duplicate";
inline constexpr char kGroupCounterUnknown[] = "group_counter_unknown";
inline constexpr char kGroupUnknown[] = "group_unknown";
inline constexpr char kStorageUnspecified[] = "storage_unspecified";
inline constexpr char kStorageUnsupported[] = "storage_unsupported";
inline constexpr char kDtypeUnspecified[] = "dtype_unspecified";
inline constexpr char kDtypeUnsupported[] = "dtype_unsupported";
inline constexpr char kKindUnspecified[] = "kind_unspecified";
inline constexpr char kKindDtypeMismatch[] = "kind_dtype_mismatch";
inline constexpr char kDeviceUnsupported[] = "device_unsupported";
inline constexpr char kDeviceMixed[] = "device_mixed";
inline constexpr char kCudaUnavailable[] = "cuda_unavailable";
inline constexpr char kShardIdDuplicate[] = "shard_id_duplicate";
inline constexpr char kShardKeyInvalid[] = "shard_key_invalid";
inline constexpr char kShapeRankMismatch[] = "shape_rank_mismatch";
inline constexpr char kShapeOverflow[] = "shape_overflow";
inline constexpr char kBoxOutsideShape[] = "box_outside_shape";
inline constexpr char kRangeOutsideBox[] = "range_outside_box";
inline constexpr char kShapeConflict[] = "shape_conflict";
inline constexpr char kShardDuplicate[] = "shard_duplicate";
inline constexpr char kShardOverlap[] = "shard_overlap";
inline constexpr char kTooManyBoxes[] = "too_many_boxes";

inline constexpr std::array kAll{
    std::string_view(kFeatureActive),         std::string_view(kFeatureUnknown),
    std::string_view(kFeatureNotEvaluated),   std::string_view(kFeatureDuplicate),
    std::string_view(kFeatureStateUnknown),   std::string_view(kFeatureRequires),
    std::string_view(kFamilyUnspecified),     std::string_view(kFamilyUnsupported),
    std::string_view(kArithmeticUnknown),     std::string_view(kArithmeticUnsupported),
    std::string_view(kUpdateCallbackMissing), std::string_view(kAxisInvalid),
    std::string_view(kAxisDuplicate),         std::string_view(kGroupDuplicate),
    std::string_view(kGroupCounterUnknown),   std::string_view(kGroupUnknown),
    std::string_view(kStorageUnspecified),    std::string_view(kStorageUnsupported),
    std::string_view(kDtypeUnspecified),      std::string_view(kDtypeUnsupported),
    std::string_view(kKindUnspecified),       std::string_view(kKindDtypeMismatch),
    std::string_view(kDeviceUnsupported),     std::string_view(kDeviceMixed),
    std::string_view(kCudaUnavailable),       std::string_view(kShardIdDuplicate),
    std::string_view(kShardKeyInvalid),       std::string_view(kShapeRankMismatch),
    std::string_view(kShapeOverflow),         std::string_view(kBoxOutsideShape),
    std::string_view(kRangeOutsideBox),       std::string_view(kShapeConflict),
    std::string_view(kShardDuplicate),        std::string_view(kShardOverlap),
    std::string_view(kTooManyBoxes)};

}  // namespace millpond::plugin::codes

#endif  // MILLPOND_PLUGIN_GUARD_CODES_H_
