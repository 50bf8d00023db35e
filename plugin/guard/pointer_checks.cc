#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "millpond/error.hpp"
#include "plugin/guard/checks.h"
#include "plugin/guard/profile.h"

namespace millpond::plugin {
namespace {

std::uint64_t item_bytes(millpond_dtype dtype) { return dtype == MILLPOND_DTYPE_FP32 ? 4 : 2; }

[[noreturn]] void refuse(std::size_t index, std::string_view member, const std::string& reason,
                         std::uint64_t wanted, std::uint64_t got, std::string remedy) {
  throw Error(MILLPOND_E_ARGUMENT, "bind", reason)
      .field(fmt::format("bind_args.shards[{}].{}", index, member))
      .want(wanted, got)
      .remedy(std::move(remedy));
}

// A tensor that is there: what the profile says of it, and an address that can be used.
void check_tensor(std::size_t index, const char* name, const Shard& shard, millpond_dtype dtype,
                  const millpond_tensor& tensor) {
  const auto refuse_member = [&](const char* member, const std::string& reason,
                                 std::uint64_t wanted, std::uint64_t got, const char* remedy) {
    refuse(index, fmt::format("{}.{}", name, member), reason, wanted, got, remedy);
  };
  static constexpr char kAgree[] = "Profile and pointers must say the same";
  if (tensor.numel != shard.numel())
    refuse_member("numel", "the tensor is not as long as the shard's flat range", shard.numel(),
                  tensor.numel, kAgree);
  if (tensor.dtype != dtype)
    refuse_member("dtype",
                  fmt::format("the tensor is {}, the profile says {}", dtype_text(tensor.dtype),
                              dtype_text(dtype)),
                  dtype, tensor.dtype, kAgree);
  if (tensor.device_type != shard.device_type)
    refuse_member("device_type", "the tensor is on another kind of device than the shard",
                  static_cast<std::uint64_t>(shard.device_type),
                  static_cast<std::uint64_t>(tensor.device_type), kAgree);
  if (tensor.device_id != shard.device_id)
    refuse_member("device_id", "the tensor is on another device than the shard",
                  static_cast<std::uint64_t>(shard.device_id),
                  static_cast<std::uint64_t>(tensor.device_id), kAgree);

  const auto base = reinterpret_cast<std::uintptr_t>(tensor.data);
  std::uint64_t address = 0;
  if (__builtin_add_overflow(base, tensor.byte_offset, &address))
    refuse_member("byte_offset", "the first element's address is beyond the address space",
                  UINT64_MAX - base, tensor.byte_offset, "Check the tensor's storage offset");
  std::uint64_t bytes = 0;
  std::uint64_t end = 0;
  if (__builtin_mul_overflow(tensor.numel, item_bytes(dtype), &bytes) ||
      __builtin_add_overflow(address, bytes, &end))
    refuse_member("numel", "the tensor ends beyond the address space",
                  (UINT64_MAX - address) / item_bytes(dtype), tensor.numel,
                  "Check the shard's flat range");
  if (address % item_bytes(dtype) != 0)
    refuse_member("data", "the first element is not aligned to its size", item_bytes(dtype),
                  address % item_bytes(dtype), "Hand over tensors of whole elements");
}

// False: the tensor is absent.
bool present(std::size_t index, const char* name, const millpond_tensor& tensor) {
  if (tensor.reserved != 0)
    refuse(index, fmt::format("{}.reserved", name), "a reserved field is not zero", 0,
           tensor.reserved, "Zero the struct before filling it");
  if (tensor.data != nullptr) return true;
  if (tensor.byte_offset != 0)
    refuse(index, fmt::format("{}.data", name), "the pointer is NULL, but has a byte_offset", 0,
           tensor.byte_offset, "Zero the whole tensor where it is absent");
  return false;
}

void check_shard(std::size_t index, const Shard& shard, const millpond_shard_pointers& pointers,
                 bool has_copy_main) {
  if (pointers.shard_id != shard.id)
    refuse(index, "shard_id", "the ids of profile and pointers differ at this place", shard.id,
           pointers.shard_id, "Give the pointers in the profile's order of shards");
  const bool moments_only = shard.kind == ShardKind::kMomentsOnly;

  if (present(index, "model", pointers.model)) {
    check_tensor(index, "model", shard, shard.model_dtype, pointers.model);
  } else if (shard.numel() != 0 && (moments_only || !has_copy_main)) {
    refuse(index, "model.data", "the pointer is NULL, and the shard has elements", shard.numel(), 0,
           moments_only ? "An fp32 parameter is its own main, so it must be given"
                        : "Give the parameter's memory, or offer host_api.copy_main_to_model");
  }
  if (present(index, "grad", pointers.grad))
    check_tensor(index, "grad", shard, shard.grad_dtype, pointers.grad);
  if (present(index, "main", pointers.main)) {
    if (moments_only)
      refuse(index, "main.data", "the shard is moments only, so it has no main of its own", 0,
             pointers.main.numel, "Leave main zero");
    check_tensor(index, "main", shard, MILLPOND_DTYPE_FP32, pointers.main);
  }
}

// Two parameters in one memory would each undo the other's update.
void check_aliases(const Profile& profile, const std::vector<millpond_shard_pointers>& pointers) {
  struct Extent {
    std::uint64_t begin, end;
    std::size_t index;
  };
  std::vector<Extent> extents;
  extents.reserve(pointers.size());
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    const millpond_tensor& model = pointers[i].model;
    if (model.data == nullptr || model.numel == 0) continue;
    const std::uint64_t begin = reinterpret_cast<std::uintptr_t>(model.data) + model.byte_offset;
    extents.push_back({begin, begin + model.numel * item_bytes(profile.shards[i].model_dtype), i});
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.index < b.index;
  });
  for (std::size_t n = 1; n < extents.size(); ++n) {
    // Extents before this one do not overlap, or the loop would have ended: only the last counts.
    if (extents[n].begin >= extents[n - 1].end) continue;
    refuse(extents[n].index, "model.data",
           fmt::format("its memory overlaps that of shard {}", extents[n - 1].index),
           extents[n - 1].end, extents[n].begin,
           "Bind a parameter's memory once; tied weights are one parameter");
  }
}

}  // namespace

void check_pointers(const Profile& profile, const std::vector<millpond_shard_pointers>& pointers,
                    bool has_copy_main) {
  if (pointers.size() != profile.shards.size())
    throw Error(MILLPOND_E_ARGUMENT, "bind", "the profile and the pointers differ in length")
        .field("bind_args.shards.count")
        .want(profile.shards.size(), pointers.size())
        .remedy("Give one element for each shard of the profile, in its order");
  for (std::size_t i = 0; i < pointers.size(); ++i)
    check_shard(i, profile.shards[i], pointers[i], has_copy_main);
  check_aliases(profile, pointers);
}

}  // namespace millpond::plugin
