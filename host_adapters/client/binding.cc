#include "millpond/client/binding.h"

#include <algorithm>
#include <array>
#include <set>

#include "millpond/error.hpp"
#include "millpond/features.h"
#include "millpond/handshake.pb.h"

namespace millpond::client {
namespace {

struct KnownFeature {
  std::uint32_t since_minor;
  const char* name;
};

#define MILLPOND_CLIENT_FEATURE(since_minor, must_evaluate, name, meaning) \
  KnownFeature{since_minor, name},
constexpr std::array kKnownFeatures = {MILLPOND_FEATURES(MILLPOND_CLIENT_FEATURE)};
#undef MILLPOND_CLIENT_FEATURE

}  // namespace

Binding::Binding(const HostIdentity& host) : profile_(std::make_unique<v1::HostProfile>()) {
  profile_->set_framework(host.framework);
  profile_->set_framework_version(host.framework_version);
  profile_->set_adapter(host.adapter);
  profile_->set_adapter_version(host.adapter_version);
  profile_->set_arithmetic(host.arithmetic);
  profile_->mutable_optimizer()->set_class_name(host.optimizer_class);
  profile_->mutable_optimizer()->set_family(v1::FAMILY_ADAM);
}

Binding::Binding(Binding&&) noexcept = default;
Binding& Binding::operator=(Binding&&) noexcept = default;
Binding::~Binding() = default;

void Binding::feature(std::string_view name, bool active, std::string_view detail) {
  v1::Feature* feature = profile_->add_features();
  feature->set_name(std::string(name));
  feature->set_state(active ? v1::STATE_ACTIVE : v1::STATE_INACTIVE);
  feature->set_detail(std::string(detail));
}

void Binding::other_features_inactive(std::uint32_t minor) {
  std::set<std::string, std::less<>> named;
  for (const v1::Feature& feature : profile_->features()) named.insert(feature.name());
  for (const KnownFeature& known : kKnownFeatures) {
    if (known.since_minor <= minor && !named.contains(known.name)) feature(known.name, false);
  }
}

void Binding::axis(std::string_view name, std::uint32_t rank, std::uint32_t size) {
  v1::Axis* axis = profile_->add_topology();
  axis->set_name(std::string(name));
  axis->set_rank(rank);
  axis->set_size(size);
}

void Binding::config_epoch(std::uint64_t epoch) { profile_->set_config_epoch(epoch); }

std::uint64_t Binding::add_group(std::string_view key, Counter counter) {
  const auto id = static_cast<std::uint64_t>(profile_->groups_size());
  v1::Group* group = profile_->add_groups();
  group->set_id(id);
  group->set_key(std::string(key));
  group->set_counter(counter == Counter::kPerGroup ? v1::COUNTER_PER_GROUP
                                                   : v1::COUNTER_PER_PARAMETER);
  return id;
}

std::uint64_t Binding::add(const Parameter& parameter) {
  v1::Shard shard;
  shard.set_id(pointers_.size());
  shard.set_key(parameter.key);
  std::uint64_t numel = 1;
  for (const std::uint64_t extent : parameter.shape) {
    shard.add_global_shape(extent);
    shard.add_box_offset(0);
    shard.add_box_shape(extent);
    if (__builtin_mul_overflow(numel, extent, &numel)) {
      throw Error(MILLPOND_E_ARGUMENT, "add parameter " + parameter.key,
                  "the shape has more than 2^64 elements");
    }
  }
  if (numel != parameter.model.numel) {
    throw Error(MILLPOND_E_ARGUMENT, "add parameter " + parameter.key,
                "the model tensor does not have the shape's number of elements")
        .want(numel, parameter.model.numel);
  }
  shard.set_flat_end(numel);
  shard.set_group_id(parameter.group);
  shard.set_host_bucket(parameter.host_bucket);
  shard.set_kind(parameter.model.dtype == MILLPOND_DTYPE_FP32 ? v1::KIND_MOMENTS_ONLY
                                                              : v1::KIND_MAIN_AND_MOMENTS);
  shard.set_model_dtype(parameter.model.dtype);
  shard.set_grad_dtype(parameter.grad.dtype);
  shard.set_model_storage(v1::STORAGE_DENSE);
  shard.set_grad_storage(v1::STORAGE_DENSE);
  shard.set_device_type(parameter.model.device_type);
  shard.set_device_id(parameter.model.device_id);
  return add_shard(shard, parameter.model, parameter.grad, parameter.main);
}

std::uint64_t Binding::add_shard(const v1::Shard& shard, const millpond_tensor& model,
                                 const millpond_tensor& grad, const millpond_tensor& main) {
  *profile_->add_shards() = shard;
  pointers_.push_back({shard.id(), model, grad, main});
  return pointers_.size() - 1;
}

millpond_tensor cpu_tensor(void* data, std::uint64_t numel, millpond_dtype dtype) {
  return {data, 0, numel, MILLPOND_DEVICE_CPU, 0, dtype, 0};
}

}  // namespace millpond::client
