#include "plugin/store/shard_sources.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "millpond/error.hpp"
#include "plugin/store/carry.h"
#include "plugin/store/mismatch.h"

namespace millpond::plugin {
namespace {

using checkpoint::Commit;
using checkpoint::Manifest;
using checkpoint::ShardRecord;
using checkpoint::StoreRecord;

template <typename Any>
checkpoint::Part part_of(const Any& shard) {
  return {shard.box_offset, shard.box_shape, shard.flat_begin, shard.flat_end};
}

// Which optimizer of a rank a store is: "rank00003/opt0_0" -> "opt0_0".
std::string_view last_part(std::string_view uid) { return uid.substr(uid.rfind('/') + 1); }

bool same_topology(const Manifest& manifest, const Profile& live) {
  return std::equal(manifest.topology.begin(), manifest.topology.end(), live.topology.begin(),
                    live.topology.end(), [](const auto& a, const auto& b) {
                      return a.name == b.name && a.rank == b.rank && a.size == b.size;
                    });
}

// Element ranges, ascending and apart from each other.
class Ranges {
 public:
  void append(std::uint64_t begin, std::uint64_t end) {
    if (!ranges_.empty() && ranges_.back().second == begin) {
      ranges_.back().second = end;
    } else {
      ranges_.emplace_back(begin, end);
    }
    total_ += end - begin;
  }
  std::uint64_t total() const { return total_; }
  std::uint64_t in_common(const Ranges& other) const {
    std::uint64_t common = 0;
    for (std::size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
      const std::uint64_t begin = std::max(ranges_[i].first, other.ranges_[j].first);
      const std::uint64_t end = std::min(ranges_[i].second, other.ranges_[j].second);
      if (begin < end) common += end - begin;
      ranges_[i].second < other.ranges_[j].second ? ++i : ++j;
    }
    return common;
  }
  void merge(const Ranges& other) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> both;
    std::merge(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(),
               std::back_inserter(both));
    ranges_.clear();
    total_ = 0;
    for (const auto& [begin, end] : both) append(begin, end);
  }

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;
  std::uint64_t total_ = 0;
};

}  // namespace

ShardSources::ShardSources(checkpoint::FileSystem& fs, const Commit& commit, const std::string& uid,
                           const Profile& live)
    : sources_(live.shards.size()) {
  for (const Shard& shard : live.shards) parts_.push_back(part_of(shard));
  if (take_same(fs, commit, uid, live)) return;
  stores_.clear();
  gather(fs, commit, uid, live);
}

bool ShardSources::take_same(checkpoint::FileSystem& fs, const Commit& commit,
                             const std::string& uid, const Profile& live) {
  const StoreRecord* const record = commit.find(uid);
  if (record == nullptr) return false;
  auto reader = std::make_unique<checkpoint::StoreReader>(fs, commit.save_id, *record, cache_);
  const Manifest& manifest = reader->manifest();
  const std::vector<std::uint32_t> same = match_shards(shards_of(manifest), live);
  if (std::count(same.begin(), same.end(), kFresh) != 0) return false;
  if (same_topology(manifest, live)) {
    refuse_extra(manifest, same, fs.shown(reader->directory() + "/" + checkpoint::kManifestName));
    // A host that names no axes may have had other ranks.
    same_ranks_ = !manifest.topology.empty() || commit.world_size == 1;
  }
  for (std::size_t i = 0; i < same.size(); ++i) {
    sources_[i].push_back({0, same[i], part_of(manifest.shards[same[i]])});
  }
  base_ = fs.shown(reader->directory() + "/" + checkpoint::kManifestName);
  stores_.push_back(std::move(reader));
  return true;
}

void ShardSources::gather(checkpoint::FileSystem& fs, const Commit& commit, const std::string& uid,
                          const Profile& live) {
  resharded_ = true;
  std::vector<const StoreRecord*> candidates;
  for (const StoreRecord& store : commit.stores) {
    if (last_part(store.uid) == last_part(uid)) candidates.push_back(&store);
  }
  // One's own first: what several ranks hold alike is taken from there.
  std::stable_partition(candidates.begin(), candidates.end(),
                        [&](const StoreRecord* store) { return store->uid == uid; });
  if (candidates.empty()) throw no_such_store(fs, commit, uid);
  base_ =
      fs.shown(commit.save_id + "/" + candidates.front()->uid + "/" + checkpoint::kManifestName);

  std::unordered_multimap<std::string, std::uint32_t> by_key;
  for (std::uint32_t i = 0; i < live.shards.size(); ++i) by_key.emplace(live.shards[i].key, i);
  std::vector<Ranges> covered(live.shards.size());
  std::vector<std::optional<ShardRecord>> unfit(live.shards.size());
  std::vector<std::uint8_t> needed(candidates.size());
  for (std::uint32_t c = 0; c < candidates.size(); ++c) {
    // Manifests pass one by one: memory does not grow with the number of ranks.
    const Manifest manifest = checkpoint::read_manifest(fs, commit.save_id, *candidates[c]);
    for (std::uint32_t s = 0; s < manifest.shards.size(); ++s) {
      const ShardRecord& saved = manifest.shards[s];
      const auto [from, to] = by_key.equal_range(saved.key);
      for (auto at = from; at != to; ++at) {
        const std::uint32_t i = at->second;
        const Shard& shard = live.shards[i];
        if (saved.global_shape != shard.global_shape || kind_of(saved) != shard.kind) {
          if (!unfit[i]) unfit[i] = saved;
          continue;
        }
        const checkpoint::Part part = part_of(saved);
        Ranges ranges;
        checkpoint::for_each_common_run(parts_[i], part, 0, shard.numel(), [&](const auto& run) {
          ranges.append(run.a, run.a + run.count);
        });
        if (ranges.total() == 0 || covered[i].in_common(ranges) != 0) continue;
        covered[i].merge(ranges);
        sources_[i].push_back({c, s, part});
        needed[c] = 1;
      }
    }
  }
  for (std::uint32_t i = 0; i < live.shards.size(); ++i) {
    const Shard& shard = live.shards[i];
    if (covered[i].total() == shard.numel()) continue;
    throw not_covered(shard, covered[i].total(), unfit[i], base_);
  }
  // At least one, for the store's own counter.
  if (std::count(needed.begin(), needed.end(), 1) == 0) needed.front() = 1;
  std::vector<std::uint32_t> place(candidates.size());
  for (std::uint32_t c = 0; c < candidates.size(); ++c) {
    place[c] = static_cast<std::uint32_t>(stores_.size());
    if (needed[c] == 0) continue;
    stores_.push_back(
        std::make_unique<checkpoint::StoreReader>(fs, commit.save_id, *candidates[c], cache_));
  }
  for (auto& sources : sources_) {
    for (ShardSource& source : sources) source.store = place[source.store];
  }
}

std::vector<std::uint64_t> ShardSources::counters(const Profile& live) const {
  std::vector<std::uint64_t> steps(sources_.size());
  std::unordered_map<std::uint64_t, std::uint64_t> of_group;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const ShardSource& source : sources_[i]) {
      const std::uint64_t step = record(source).step;
      if (&source != &sources_[i].front() && step != steps[i]) {
        throw Error(MILLPOND_E_MISMATCH, "load",
                    "parts of the parameter have different step counters in the checkpoint")
            .path(base_)
            .field(live.shards[i].key)
            .want(steps[i], step);
      }
      steps[i] = step;
    }
    if (!sources_[i].empty()) {
      std::uint64_t& most = of_group[live.shards[i].group_id];
      most = std::max(most, steps[i]);
    }
  }
  // A shard without elements that the checkpoint did not know: where its group is.
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (sources_[i].empty()) steps[i] = of_group[live.shards[i].group_id];
  }
  require_group_counters(live, steps, base_);
  return steps;
}

std::uint64_t ShardSources::completed() const {
  std::uint64_t most = 0;
  for (const auto& store : stores_) most = std::max(most, store->manifest().step);
  return most;
}

std::string ShardSources::shown_manifest() const { return base_; }

}  // namespace millpond::plugin
