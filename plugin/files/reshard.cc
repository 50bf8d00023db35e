#include "plugin/files/reshard.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/saves.h"
#include "checkpoint/store_writer.h"
#include "kernels/storage.h"
#include "millpond/error.hpp"
#include "plugin/store/mismatch.h"
#include "plugin/store/restore.h"
#include "plugin/store/save.h"
#include "plugin/store/shard_sources.h"

namespace millpond::plugin {
namespace {

// All parameters of one kind of store ("opt0_0" of every rank), whole, without ranks.
struct Kind {
  Profile whole;
  LayoutOptions layout;
};

std::string last_part(const std::string& uid) { return uid.substr(uid.rfind('/') + 1); }

void add(const checkpoint::Manifest& manifest, const std::string& path, Kind* kind) {
  if (kind->whole.shards.empty() && kind->whole.groups.empty()) {
    kind->layout.storage = manifest.storage;
    kind->layout.block_elements = manifest.block_elements;
    kind->layout.tile_elements = manifest.block_elements;
  }
  check_storage(manifest, kind->layout, false, path);
  for (const auto& group : manifest.groups) {
    auto& groups = kind->whole.groups;
    if (std::none_of(groups.begin(), groups.end(),
                     [&](const Group& known) { return known.id == group.id; })) {
      Group added;
      added.id = group.id;
      added.key = group.key;
      groups.push_back(added);
    }
  }
  std::map<std::string, bool> known;
  for (const Shard& shard : kind->whole.shards) known[shard.key] = true;
  Profile shards = shards_of(manifest);
  for (std::size_t i = 0; i < shards.shards.size(); ++i) {
    Shard& shard = shards.shards[i];
    if (known[shard.key]) continue;
    known[shard.key] = true;
    shard.group_id = manifest.shards[i].group_id;
    shard.box_shape = shard.global_shape;
    shard.box_offset.assign(shard.global_shape.size(), 0);
    shard.flat_begin = 0;
    shard.flat_end = 1;
    for (const std::uint64_t size : shard.global_shape) shard.flat_end *= size;
    kind->whole.shards.push_back(std::move(shard));
  }
}

Profile part_of(const Profile& whole, std::uint32_t rank, std::uint32_t world_size) {
  Profile part = whole;
  for (Shard& shard : part.shards) {
    const std::uint64_t numel = shard.flat_end;
    // Not numel * rank, which may not fit.
    const auto cut = [&](std::uint64_t r) {
      const std::uint64_t at = numel / world_size * r + numel % world_size * r / world_size;
      return r == world_size ? numel
                             : std::min(numel, kernels::round_up(at, kernels::kGroupElements));
    };
    shard.flat_begin = cut(rank);
    shard.flat_end = cut(rank + 1);
  }
  part.topology = {{"rank", rank, world_size}};
  return part;
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// One store's tiles, from wherever they are, through one buffer of a tile.
checkpoint::StoreRecord write_store(const ShardSources& sources, const Profile& profile,
                                    const LayoutOptions& layout, const std::string& uid,
                                    checkpoint::FileSystem& to, const std::string& save_id,
                                    const std::function<void(std::uint64_t)>& written) {
  std::vector<ShardShape> shapes;
  for (const Shard& shard : profile.shards) {
    shapes.push_back({shard.numel(), 0, shard.kind == ShardKind::kMomentsOnly});
  }
  const Plan plan = make_plan(shapes, layout);
  Restorer restorer(sources);
  const auto moments_of = [&](const Bucket& bucket) {
    for (std::uint32_t t = bucket.first_tile; t < bucket.first_tile + bucket.tiles; ++t) {
      if (restorer.brings_moments(plan, plan.tiles[t])) return true;
    }
    return false;
  };
  checkpoint::StoreWriter writer(
      to, save_id,
      describe(profile, plan, sources.counters(profile), sources.completed(), uid, moments_of));
  const std::uint64_t bytes = std::max(plan.max_tile_bytes, kernels::kPageBytes);
  const std::unique_ptr<std::byte[], Free> memory(
      static_cast<std::byte*>(std::aligned_alloc(kernels::kPageBytes, bytes)));
  if (memory == nullptr) throw std::bad_alloc();
  for (std::uint32_t t = 0; t < plan.tiles.size(); ++t) {
    const Tile& tile = plan.tiles[t];
    const bool moments = writer.manifest().buckets[tile.bucket].moments_present;
    if (tile.bytes[MILLPOND_SEGMENT_MAIN] == 0 && !moments) continue;
    std::fill_n(memory.get(), bytes, std::byte{0});
    TileView view{.index = t, .tile = &tile, .plan = &plan, .memory = memory.get()};
    restorer.fill(view);
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      if (tile.bytes[s] == 0 || (s != MILLPOND_SEGMENT_MAIN && !moments)) continue;
      if (s != MILLPOND_SEGMENT_MAIN && !view.moments_present) {
        writer.write_zeros(tile.bucket, s, tile.first_block, tile.blocks);
      } else {
        writer.write(tile.bucket, s, tile.first_block, {view.segment(s), tile.bytes[s]});
      }
      written(tile.bytes[s]);
    }
  }
  return writer.finish();
}

}  // namespace

void reshard_save(checkpoint::FileSystem& from, const std::string& save_id,
                  checkpoint::FileSystem& to, std::uint32_t world_size, const FilesWork& work) {
  const checkpoint::Commit source = checkpoint::find_save(from, save_id);
  std::map<std::string, Kind> kinds;
  std::uint64_t total = 0, done = 0;
  for (const checkpoint::StoreRecord& record : source.stores) {
    const checkpoint::Manifest manifest = checkpoint::read_manifest(from, source.save_id, record);
    add(manifest, from.shown(source.save_id + "/" + record.uid), &kinds[last_part(record.uid)]);
    for (const auto& bucket : manifest.buckets) total += bucket.file_bytes;
  }
  const checkpoint::Saves saves = checkpoint::list_saves(to);
  checkpoint::Commit commit;
  commit.save_id = checkpoint::make_save_id();
  commit.sequence = saves.committed.empty() ? 1 : saves.committed.front().sequence + 1;
  commit.world_size = world_size;
  try {
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      for (const auto& [name, kind] : kinds) {
        char uid[160];
        std::snprintf(uid, sizeof uid, "rank%05u/%s", rank, name.c_str());
        const Profile profile = part_of(kind.whole, rank, world_size);
        const ShardSources sources(from, source, uid, profile);
        checkpoint::StoreRecord record = write_store(sources, profile, kind.layout, uid, to,
                                                     commit.save_id, [&](std::uint64_t bytes) {
                                                       done += bytes;
                                                       work.tell(std::min(done, total), total);
                                                     });
        record.rank = rank;
        commit.stores.push_back(std::move(record));
      }
    }
    checkpoint::write_commit(to, commit, 0);
  } catch (...) {
    checkpoint::abandon(to, commit.save_id);
    throw;
  }
  const nlohmann::ordered_json answer = {{"save_id", commit.save_id},
                                         {"world_size", world_size},
                                         {"stores", commit.stores.size()},
                                         {"bytes", done}};
  work.emit(answer.dump() + "\n");
}

}  // namespace millpond::plugin
