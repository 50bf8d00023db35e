#include "tests/guard/same_profile.h"

#include <algorithm>

namespace millpond::tests {
namespace {

// What an enum of ours must hold for a number on the wire: itself, or "unknown" (255).
bool same_enum(std::uint8_t ours, int official, int last) {
  return official >= 0 && official <= last ? ours == official : ours == 255;
}
template <typename Enum>
std::uint8_t number(Enum value) {
  return static_cast<std::uint8_t>(value);
}

bool same(const plugin::Axis& a, const v1::Axis& b) {
  return a.name == b.name() && a.rank == b.rank() && a.size == b.size();
}
bool same(const plugin::Feature& a, const v1::Feature& b) {
  return a.name == b.name() && a.detail == b.detail() &&
         same_enum(number(a.state), b.state(), v1::STATE_ACTIVE);
}
bool same(const plugin::Group& a, const v1::Group& b) {
  const int counter = b.counter();
  return a.id == b.id() && a.key == b.key() && a.counter_per_group == (counter == 1) &&
         a.counter_known == (counter == 0 || counter == 1);
}
template <typename Repeated>
bool same_numbers(const std::vector<std::uint64_t>& a, const Repeated& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}
bool same(const plugin::Shard& a, const v1::Shard& b) {
  return a.id == b.id() && a.key == b.key() && same_numbers(a.global_shape, b.global_shape()) &&
         same_numbers(a.box_offset, b.box_offset()) && same_numbers(a.box_shape, b.box_shape()) &&
         a.flat_begin == b.flat_begin() && a.flat_end == b.flat_end() &&
         a.group_id == b.group_id() && a.host_bucket == b.host_bucket() &&
         same_enum(number(a.kind), b.kind(), v1::KIND_MOMENTS_ONLY) &&
         a.model_dtype == b.model_dtype() && a.grad_dtype == b.grad_dtype() &&
         same_enum(number(a.model_storage), b.model_storage(), v1::STORAGE_SPARSE) &&
         same_enum(number(a.grad_storage), b.grad_storage(), v1::STORAGE_SPARSE) &&
         a.device_type == b.device_type() && a.device_id == b.device_id();
}

template <typename Ours, typename Official>
std::string compare_lists(const char* what, const Ours& ours, const Official& official) {
  if (ours.size() != static_cast<std::size_t>(official.size()))
    return std::string("number of ") + what;
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (!same(ours[i], official[static_cast<int>(i)]))
      return std::string(what) + "[" + std::to_string(i) +
             "]: " + official[static_cast<int>(i)].ShortDebugString();
  return {};
}

}  // namespace

std::string difference(const plugin::Profile& ours, const v1::HostProfile& official) {
  if (ours.framework != official.framework()) return "framework";
  if (ours.framework_version != official.framework_version()) return "framework_version";
  if (ours.adapter != official.adapter()) return "adapter";
  if (ours.adapter_version != official.adapter_version()) return "adapter_version";
  if (ours.optimizer_class != official.optimizer().class_name()) return "optimizer.class_name";
  if (ours.optimizer_family != static_cast<std::uint32_t>(official.optimizer().family()))
    return "optimizer.family";
  if (ours.arithmetic != official.arithmetic()) return "arithmetic";
  if (ours.config_epoch != official.config_epoch()) return "config_epoch";
  for (std::string text : {compare_lists("topology", ours.topology, official.topology()),
                           compare_lists("features", ours.features, official.features()),
                           compare_lists("groups", ours.groups, official.groups()),
                           compare_lists("shards", ours.shards, official.shards())})
    if (!text.empty()) return text;
  return {};
}

}  // namespace millpond::tests
