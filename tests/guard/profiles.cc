#include "tests/guard/profiles.h"

#include "millpond/base.h"
#include "millpond/features.h"

namespace millpond::tests {
namespace {

v1::Shard& add_shard(v1::HostProfile& profile, const std::string& key, std::uint64_t begin,
                     std::uint64_t end, std::uint32_t dtype) {
  v1::Shard& shard = *profile.add_shards();
  shard.set_id(100 + static_cast<std::uint64_t>(profile.shards_size()));
  shard.set_key(key);
  for (const std::uint64_t size : {4, 6}) {
    shard.add_global_shape(size);
    shard.add_box_offset(0);
    shard.add_box_shape(size);
  }
  shard.set_flat_begin(begin);
  shard.set_flat_end(end);
  shard.set_group_id(7);
  shard.set_kind(dtype == MILLPOND_DTYPE_FP32 ? v1::KIND_MOMENTS_ONLY : v1::KIND_MAIN_AND_MOMENTS);
  shard.set_model_dtype(dtype);
  shard.set_grad_dtype(MILLPOND_DTYPE_FP32);
  shard.set_model_storage(v1::STORAGE_DENSE);
  shard.set_grad_storage(v1::STORAGE_DENSE);
  shard.set_device_type(MILLPOND_DEVICE_CPU);
  return shard;
}

}  // namespace

v1::HostProfile good_profile() {
  v1::HostProfile profile;
  profile.set_framework("test");
  profile.set_framework_version("1.0");
  profile.set_adapter("guard_test");
  profile.set_adapter_version("1");
  profile.mutable_optimizer()->set_class_name("torch.optim.AdamW");
  profile.mutable_optimizer()->set_family(v1::FAMILY_ADAM);
  profile.set_arithmetic("host/1");
  v1::Axis& axis = *profile.add_topology();
  axis.set_name("dp");
  axis.set_rank(1);
  axis.set_size(2);
#define MILLPOND_INACTIVE(since, must, name, meaning) \
  feature(profile, name).set_state(v1::STATE_INACTIVE);
  MILLPOND_FEATURES(MILLPOND_INACTIVE)
#undef MILLPOND_INACTIVE
  v1::Group& group = *profile.add_groups();
  group.set_id(7);
  group.set_key("wd_mult=1");
  add_shard(profile, "layer.0.weight", 0, 10, MILLPOND_DTYPE_BF16);
  add_shard(profile, "layer.0.weight", 10, 24, MILLPOND_DTYPE_BF16);
  add_shard(profile, "layer.1.weight", 0, 24, MILLPOND_DTYPE_FP16);
  add_shard(profile, "norm", 0, 24, MILLPOND_DTYPE_FP32);
  return profile;
}

plugin::GuardContext good_context() {
  plugin::GuardContext context;
  context.has_update = true;
  return context;
}

v1::Feature& feature(v1::HostProfile& profile, const std::string& name) {
  for (v1::Feature& entry : *profile.mutable_features())
    if (entry.name() == name) return entry;
  v1::Feature& entry = *profile.add_features();
  entry.set_name(name);
  return entry;
}

void remove_feature(v1::HostProfile& profile, const std::string& name) {
  auto& features = *profile.mutable_features();
  for (int i = 0; i < features.size(); ++i)
    if (features[i].name() == name) return features.DeleteSubrange(i, 1);
}

plugin::Profile read(const v1::HostProfile& profile) {
  const std::string bytes = profile.SerializeAsString();
  return plugin::read_profile(bytes.data(), bytes.size());
}

std::vector<plugin::Refusal> judge(const v1::HostProfile& profile,
                                   const plugin::GuardContext& context) {
  return plugin::judge(read(profile), context);
}

std::multiset<CodeAndSubject> codes_of(const std::vector<plugin::Refusal>& refusals) {
  std::multiset<CodeAndSubject> codes;
  for (const plugin::Refusal& refusal : refusals) codes.emplace(refusal.code, refusal.subject);
  return codes;
}

}  // namespace millpond::tests
