#include "plugin/store/mismatch.h"

#include <unordered_map>

#include "checkpoint/geometry.h"
#include "millpond/error.hpp"
#include "millpond/host.h"
#include "plugin/store/carry.h"

namespace millpond::plugin {
namespace {

std::string list(const std::vector<std::uint64_t>& numbers) {
  std::string text = "[";
  for (const std::uint64_t number : numbers) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(number);
  }
  return text + "]";
}

std::string range(std::uint64_t begin, std::uint64_t end) {
  return std::to_string(begin) + ".." + std::to_string(end);
}

// What differs between a live shard and the checkpoint's shard of the same key.
std::string difference(const checkpoint::ShardRecord& saved, const Shard& live) {
  const auto differ = [](const char* what, const std::string& a, const std::string& b) {
    return std::string("its ") + what + " is " + a + " in the checkpoint and " + b +
           " in the store";
  };
  if (saved.global_shape != live.global_shape) {
    return differ("global shape", list(saved.global_shape), list(live.global_shape));
  }
  return kind_of(saved) == ShardKind::kMomentsOnly
             ? "it is its own main in the checkpoint and has a separate one in the store"
             : "it has a separate main in the checkpoint and is its own in the store";
}

}  // namespace

ShardKind kind_of(const checkpoint::ShardRecord& record) {
  return record.moments_only ? ShardKind::kMomentsOnly : ShardKind::kMainAndMoments;
}

Profile shards_of(const checkpoint::Manifest& manifest) {
  Profile profile;
  for (const checkpoint::ShardRecord& record : manifest.shards) {
    Shard shard;
    shard.key = record.key;
    shard.global_shape = record.global_shape;
    shard.box_offset = record.box_offset;
    shard.box_shape = record.box_shape;
    shard.flat_begin = record.flat_begin;
    shard.flat_end = record.flat_end;
    shard.kind = kind_of(record);
    profile.shards.push_back(std::move(shard));
  }
  return profile;
}

void refuse_extra(const checkpoint::Manifest& manifest, const std::vector<std::uint32_t>& taken,
                  const std::string& path) {
  std::vector<std::uint8_t> used(manifest.shards.size());
  for (const std::uint32_t shard : taken) used[shard] = 1;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i] != 0) continue;
    const checkpoint::ShardRecord& extra = manifest.shards[i];
    throw Error(MILLPOND_E_MISMATCH, "load",
                "the checkpoint has elements " + range(extra.flat_begin, extra.flat_end) +
                    " of the parameter, the store does not")
        .path(path)
        .field(extra.key);
  }
}

Error not_covered(const Shard& live, std::uint64_t found,
                  const std::optional<checkpoint::ShardRecord>& unfit, const std::string& path) {
  if (found == 0 && !unfit) {
    return Error(MILLPOND_E_MISSING, "load", "the parameter is not in the checkpoint")
        .path(path)
        .field(live.key);
  }
  if (unfit) {
    return Error(MILLPOND_E_MISMATCH, "load", difference(*unfit, live)).path(path).field(live.key);
  }
  return Error(MILLPOND_E_MISMATCH, "load",
               "the checkpoint's shards do not tile elements " +
                   range(live.flat_begin, live.flat_end) + " of the box " + list(live.box_offset) +
                   "+" + list(live.box_shape))
      .path(path)
      .field(live.key)
      .want(live.numel(), found);
}

Error no_such_store(const checkpoint::FileSystem& fs, const checkpoint::Commit& commit,
                    const std::string& uid) {
  std::string names;
  for (const checkpoint::StoreRecord& store : commit.stores) {
    if (names.size() > 200) {
      names += ", ...";
      break;
    }
    names += (names.empty() ? "" : ", ") + store.uid;
  }
  return Error(MILLPOND_E_MISSING, "load",
               "the checkpoint has no store " + uid + "; it has " +
                   (names.empty() ? "none" : names) + " (world size " +
                   std::to_string(commit.world_size) + ")")
      .path(fs.shown(commit.save_id + "/" + checkpoint::kCommitName))
      .remedy("Give the store the last part of its name that it had; ranks may be others");
}

void check_storage(const checkpoint::Manifest& manifest, const LayoutOptions& live, bool convert,
                   const std::string& path) {
  for (std::uint32_t s = 0; s < kSegments; ++s) {
    if (manifest.storage[s] == live.storage[s] || convert) continue;
    throw Error(MILLPOND_E_MISMATCH, "load",
                std::string(checkpoint::segment_name(s)) + " is stored as " +
                    kernels::storage_name(manifest.storage[s]) + " in the checkpoint and as " +
                    kernels::storage_name(live.storage[s]) + " in the store")
        .path(path)
        .remedy(
            "Set the option \"moments\" as it was, or ask for the conversion "
            "(MILLPOND_IO_CONVERT)");
  }
}

void require_group_counters(const Profile& live, const std::vector<std::uint64_t>& steps,
                            const std::string& path) {
  for (const Group& group : live.groups) {
    if (!group.counter_per_group) continue;
    std::size_t first = steps.size();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (live.shards[i].group_id != group.id) continue;
      if (first == steps.size()) first = i;
      if (steps[i] == steps[first]) continue;
      throw Error(MILLPOND_E_MISMATCH, "load",
                  "the group \"" + group.key + "\" has one step counter, but " +
                      live.shards[first].key + " and " + live.shards[i].key +
                      " have different ones in the checkpoint")
          .path(path)
          .field(live.shards[i].key)
          .want(steps[first], steps[i]);
    }
  }
}

}  // namespace millpond::plugin
