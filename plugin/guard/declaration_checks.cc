#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_set>

#include "kernels/adam.h"
#include "plugin/guard/checks.h"
#include "plugin/guard/codes.h"

namespace millpond::plugin {
namespace {

constexpr std::uint32_t kFamilyAdam = 1;  // handshake.proto's Family

void check_family(const Profile& profile, Refusals& refusals) {
  if (profile.optimizer_family == kFamilyAdam) return;
  if (profile.optimizer_family == 0) {
    refusals.add(codes::kFamilyUnspecified, "optimizer.family",
                 "The host did not say what family the optimizer belongs to.",
                 "Send FAMILY_ADAM for Adam and AdamW.");
    return;
  }
  refusals.add(
      codes::kFamilyUnsupported, "optimizer.family",
      [&] {
        return fmt::format("The optimizer \"{}\" is not of the Adam family.",
                           profile.optimizer_class);
      },
      "Use Adam or AdamW; no other optimizer can be streamed in this version.");
}

void check_arithmetic(const Profile& profile, const GuardContext& context, Refusals& refusals) {
  kernels::Variant variant{};
  if (!kernels::parse_variant(profile.arithmetic.data(), profile.arithmetic.size(), &variant)) {
    refusals.add(
        codes::kArithmeticUnknown, "arithmetic",
        [&] {
          return fmt::format("This version knows no arithmetic named \"{}\".", profile.arithmetic);
        },
        "Name one of the variants that ARCHITECTURE.md lists, or host/1 with an update callback.");
    return;
  }
  if (variant == kernels::Variant::kHost && !context.has_update) {
    refusals.add(codes::kUpdateCallbackMissing, "arithmetic",
                 "The arithmetic host/1 is the host's own Adam, and host_api.update is NULL.",
                 "Offer the update callback, or name another variant.");
  }
  for (const bool cuda : {false, true}) {
    const std::int32_t device = cuda ? MILLPOND_DEVICE_CUDA : MILLPOND_DEVICE_CPU;
    const bool used = std::any_of(profile.shards.begin(), profile.shards.end(),
                                  [device](const Shard& s) { return s.device_type == device; });
    const char* why_not = "";
    if (!used || kernels::variant_supported(variant, cuda, &why_not)) continue;
    refusals.add(
        codes::kArithmeticUnsupported, "arithmetic",
        [&] {
          return fmt::format("The arithmetic {} cannot run on {} here: {}", profile.arithmetic,
                             cuda ? "CUDA" : "the CPU", why_not);
        },
        "Name a variant of this device, or host/1 with an update callback.");
  }
}

void check_topology(const Profile& profile, Refusals& refusals) {
  std::set<std::string_view> names;
  for (const Axis& axis : profile.topology) {
    if (axis.name.empty() || axis.rank >= axis.size)
      refusals.add(
          codes::kAxisInvalid, axis.name,
          [&] {
            return fmt::format("The axis \"{}\" has rank {} of {}.", axis.name, axis.rank,
                               axis.size);
          },
          "Give every axis a name, and a rank from 0 to its size - 1.");
    if (!names.insert(axis.name).second)
      refusals.add(codes::kAxisDuplicate, axis.name, "The axis is listed more than once.",
                   "List every axis once.");
  }
}

void check_groups(const Profile& profile, Refusals& refusals) {
  std::unordered_set<std::uint64_t> ids;
  for (const Group& group : profile.groups) {
    if (!ids.insert(group.id).second)
      refusals.add(
          codes::kGroupDuplicate, group.key,
          [&] { return fmt::format("Two groups have the id {}.", group.id); },
          "Give every group an id of its own.");
    if (!group.counter_known)
      refusals.add(
          codes::kGroupCounterUnknown, group.key,
          [&] {
            return fmt::format(
                "Group {} counts steps in a way that this version does "
                "not know.",
                group.id);
          },
          "Send COUNTER_PER_PARAMETER or COUNTER_PER_GROUP.");
  }
}

}  // namespace

void check_declarations(const Profile& profile, const GuardContext& context, Refusals& refusals) {
  check_family(profile, refusals);
  check_arithmetic(profile, context, refusals);
  check_topology(profile, refusals);
  check_groups(profile, refusals);
}

}  // namespace millpond::plugin
