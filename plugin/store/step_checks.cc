// What a step demands of its arguments. All of it is looked at before anything moves; a refusal
// leaves the store as it was.
#include <cmath>
#include <string>

#include "plugin/store/binding.h"
#include "plugin/store/runtime.h"
#include "plugin/store/store.h"

namespace millpond::plugin {
namespace {

Error bad(std::string field, std::string reason) {
  return Error(MILLPOND_E_ARGUMENT, "step", std::move(reason))
      .field("step_args." + std::move(field))
      .remedy("Nothing was changed");
}

std::string indexed(const char* array, std::size_t index, const char* member = nullptr) {
  std::string text = std::string(array) + "[" + std::to_string(index) + "]";
  if (member != nullptr) text = text + "." + member;
  return text;
}

void check_group(const millpond_group_step& group, std::size_t index) {
  const auto refuse = [&](const char* member, double value, const char* range) {
    return bad(indexed("groups", index, member), std::to_string(value) + " is not " + range);
  };
  // NaN fails every comparison.
  if (!std::isfinite(group.lr) || !(group.lr >= 0)) {
    throw refuse("lr", group.lr, "a finite number from 0");
  }
  if (!(group.beta1 >= 0 && group.beta1 < 1)) throw refuse("beta1", group.beta1, "in [0, 1)");
  if (!(group.beta2 >= 0 && group.beta2 < 1)) throw refuse("beta2", group.beta2, "in [0, 1)");
  if (!std::isfinite(group.eps) || !(group.eps >= 0)) {
    throw refuse("eps", group.eps, "a finite number from 0");
  }
  if (!std::isfinite(group.weight_decay) || !(group.weight_decay >= 0)) {
    throw refuse("weight_decay", group.weight_decay, "a finite number from 0");
  }
  if (group.decoupled > 1) {
    throw bad(indexed("groups", index, "decoupled"), "neither 0 nor 1").want(1, group.decoupled);
  }
  if (group.maximize > 1) {
    throw bad(indexed("groups", index, "maximize"), "neither 0 nor 1").want(1, group.maximize);
  }
}

}  // namespace

void Store::check_step(const millpond_step_args& args,
                       const std::vector<millpond_group_step>& groups) {
  require_ready("step");
  const Profile& profile = held_->profile;
  if (args.config_epoch != profile.config_epoch) {
    throw bad("config_epoch",
              "the host's configuration was read anew since the bind, or belongs to another store")
        .want(profile.config_epoch, args.config_epoch)
        .remedy("Bind again with the new profile");
  }
  constexpr std::uint32_t kAbsent = UINT32_MAX;
  for (std::uint32_t& given : given_group_) given = kAbsent;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::size_t g = 0;
    while (g < profile.groups.size() && profile.groups[g].id != groups[i].id) ++g;
    if (g == profile.groups.size()) {
      throw bad(indexed("groups", i, "id"),
                "the profile has no group " + std::to_string(groups[i].id));
    }
    if (given_group_[g] != kAbsent) {
      throw bad(indexed("groups", i, "id"),
                "group " + std::to_string(groups[i].id) + " is given twice");
    }
    given_group_[g] = static_cast<std::uint32_t>(i);
    check_group(groups[i], i);
  }
  for (std::size_t g = 0; g < profile.groups.size(); ++g) {
    if (given_group_[g] != kAbsent) continue;
    throw bad("groups", "group " + std::to_string(profile.groups[g].id) + " is missing")
        .want(profile.groups.size(), groups.size());
  }
  if (args.found_inf > 1) throw bad("found_inf", "neither 0 nor 1").want(1, args.found_inf);
  if (!std::isfinite(args.grad_scale) || !(args.grad_scale > 0)) {
    throw bad("grad_scale", std::to_string(args.grad_scale) + " is not a finite number above 0")
        .remedy("1 means unscaled gradients; nothing was changed");
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const char* why_not = "";
    if (kernels::hyper_proven(hyper_of(groups[i], 1, args.grad_scale), &why_not)) continue;
    throw bad(indexed("groups", i, groups[i].maximize != 0 ? "maximize" : "decoupled"), why_not)
        .remedy("Nothing was changed");
  }
  check_stream(args.stream, home_, "step_args.stream", "step");
  check_gradients(args);
}

// Fills gradients_, which only an accepted step uses.
void Store::check_gradients(const millpond_step_args& args) {
  const Profile& profile = held_->profile;
  const std::size_t shards = profile.shards.size();
  const bool arrays = args.grads != nullptr || args.dtypes != nullptr || args.has_grad != nullptr;
  if (args.shard_count != shards && (arrays || args.shard_count != 0)) {
    throw bad("shard_count", "not the number of bound shards").want(shards, args.shard_count);
  }
  for (std::size_t i = 0; i < shards; ++i) {
    Gradient& gradient = gradients_[i];
    gradient.pointer = args.grads != nullptr ? args.grads[i] : last_grads_[i];
    const millpond_dtype dtype =
        args.dtypes != nullptr ? args.dtypes[i] : profile.shards[i].grad_dtype;
    const bool empty = profile.shards[i].numel() == 0;
    gradient.active = gradient.pointer != nullptr;
    if (args.has_grad != nullptr) {
      if (args.has_grad[i] > 1) {
        throw bad(indexed("has_grad", i), "neither 0 nor 1").at(i).want(1, args.has_grad[i]);
      }
      gradient.active = args.has_grad[i] != 0;
    }
    if (!gradient.active) {
      // A dtype of an absent gradient means nothing.
      gradient.element = element_of(profile.shards[i].grad_dtype);
      continue;
    }
    if (!known_element(dtype)) {
      throw bad(indexed("dtypes", i), "a gradient is fp32, bf16 or fp16")
          .at(i)
          .want(profile.shards[i].grad_dtype, dtype);
    }
    gradient.element = element_of(dtype);
    if (empty) continue;
    if (gradient.pointer == nullptr) {
      throw bad(indexed("grads", i),
                "the shard " + profile.shards[i].key + " has a gradient, its pointer is NULL")
          .at(i);
    }
    const std::uint64_t item = kernels::item_bytes(gradient.element);
    const auto address = reinterpret_cast<std::uintptr_t>(gradient.pointer);
    if (address % item != 0) {
      throw bad(indexed("grads", i), "the pointer is not aligned to its element")
          .at(i)
          .want(item, address % item);
    }
    // Only where it is new: the driver is asked.
    if (gradient.pointer != last_grads_[i]) {
      device_->check_address(gradient.pointer, "step_args.grads", i, "");
    }
  }
}

}  // namespace millpond::plugin
