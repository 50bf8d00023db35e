#include "plugin/files/reference_layout.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/commit.h"
#include "millpond/error.hpp"

namespace millpond::plugin {
namespace {

Error refused(const std::string& reason) {
  return Error(MILLPOND_E_ARGUMENT, "read layout", reason)
      .field("request.layout")
      .remedy("plugin/files/reference_layout.h has the form");
}

Shard read_entry(const nlohmann::json& entry, std::uint64_t bucket, std::size_t groups) {
  Shard shard;
  shard.key = entry.at("key").get<std::string>();
  shard.global_shape = entry.at("shape").get<std::vector<std::uint64_t>>();
  shard.box_shape = shard.global_shape;
  shard.box_offset.assign(shard.global_shape.size(), 0);
  shard.flat_begin = entry.at("begin").get<std::uint64_t>();
  shard.flat_end = entry.at("end").get<std::uint64_t>();
  shard.group_id = entry.at("group").get<std::uint64_t>();
  shard.host_bucket = bucket;
  shard.kind = ShardKind::kMainAndMoments;
  std::uint64_t numel = 1;
  for (const std::uint64_t size : shard.global_shape) numel *= size;
  if (shard.flat_begin > shard.flat_end || shard.flat_end > numel) {
    throw refused("the range of " + shard.key + " is not inside its shape");
  }
  if (shard.group_id >= groups) throw refused("the group of " + shard.key + " is not in the list");
  return shard;
}

}  // namespace

std::vector<ReferenceStore> read_reference_layout(const std::string& json) {
  std::vector<ReferenceStore> stores;
  try {
    const nlohmann::json document = nlohmann::json::parse(json);
    for (const nlohmann::json& given : document.at("stores")) {
      ReferenceStore store;
      store.uid = given.at("uid").get<std::string>();
      checkpoint::check_uid(store.uid);
      for (const nlohmann::json& key : given.at("groups")) {
        Group group;
        group.id = store.profile.groups.size();
        group.key = key.get<std::string>();
        store.profile.groups.push_back(group);
      }
      for (const nlohmann::json& bucket : given.at("buckets")) {
        store.entries.emplace_back();
        for (const nlohmann::json& entry : bucket) {
          store.entries.back().push_back(static_cast<std::uint32_t>(store.profile.shards.size()));
          store.profile.shards.push_back(
              read_entry(entry, store.entries.size() - 1, store.profile.groups.size()));
        }
      }
      stores.push_back(std::move(store));
    }
  } catch (const nlohmann::json::exception& error) {
    throw refused(error.what());
  }
  if (stores.empty()) throw refused("no store is in it");
  return stores;
}

std::string torch_name(kernels::Storage storage) {
  if (storage == kernels::Storage::kFp32) return "torch.float32";
  if (storage == kernels::Storage::kBf16) return "torch.bfloat16";
  throw Error(MILLPOND_E_UNSUPPORTED, "export",
              std::string("the reference has no block-scaled format like ") +
                  kernels::storage_name(storage))
      .remedy("Load with moments in fp32 or bf16 (MILLPOND_IO_CONVERT), save, export that");
}

kernels::Storage from_torch_name(const std::string& name, const std::string& path) {
  if (name == "torch.float32") return kernels::Storage::kFp32;
  if (name == "torch.bfloat16") return kernels::Storage::kBf16;
  throw Error(MILLPOND_E_UNSUPPORTED, "import",
              "moments stored as " + name +
                  " without scales are not imported: they have lost "
                  "range already")
      .path(path)
      .remedy("Write the checkpoint with fp32 or bf16 moments");
}

std::uint64_t reference_offset(const ReferenceStore& store, std::uint32_t bucket,
                               const ReferenceStorage& storage, std::uint32_t segment,
                               std::size_t entry) {
  std::uint64_t offset = 0;
  for (std::uint32_t s = 0; s <= segment; ++s) {
    const std::size_t last = s == segment ? entry : store.entries[bucket].size();
    for (std::size_t e = 0; e < last; ++e) {
      const Shard& shard = store.profile.shards[store.entries[bucket][e]];
      offset +=
          kernels::round_up(shard.numel() * kernels::item_bytes(storage[s]), kernels::kPageBytes);
    }
  }
  return offset;
}

std::uint64_t reference_bytes(const ReferenceStore& store, std::uint32_t bucket,
                              const ReferenceStorage& storage) {
  return reference_offset(store, bucket, storage, kSegments - 1, store.entries[bucket].size());
}

std::vector<std::uint64_t> groups_of(const ReferenceStore& store, std::uint32_t bucket) {
  std::set<std::uint64_t> groups;
  for (const std::uint32_t shard : store.entries[bucket]) {
    groups.insert(store.profile.shards[shard].group_id);
  }
  return {groups.begin(), groups.end()};
}

std::uint32_t rank_of(const std::string& uid) {
  unsigned rank = 0;
  return std::sscanf(uid.c_str(), "rank%5u/", &rank) == 1 ? rank : 0;
}

}  // namespace millpond::plugin
