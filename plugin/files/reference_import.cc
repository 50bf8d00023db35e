#include "plugin/files/reference_import.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/saves.h"
#include "checkpoint/store_writer.h"
#include "checkpoint/strict_json.h"
#include "millpond/error.hpp"
#include "plugin/files/reference_layout.h"
#include "plugin/store/save.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kBlockElements = 1 << 18;

// The reference's manifest.json, checked against the layout.
struct Found {
  ReferenceStorage storage{kernels::Storage::kFp32, kernels::Storage::kFp32,
                           kernels::Storage::kFp32};
  std::vector<std::uint64_t> steps;  // by shard
  std::uint64_t completed = 0;
};

Found read_found(checkpoint::FileSystem& from, const ReferenceStore& store) {
  const std::string path = store.uid + "/manifest.json", shown = from.shown(path);
  const auto mismatch = [&](const std::string& reason, std::uint64_t wanted, std::uint64_t got) {
    return Error(MILLPOND_E_MISMATCH, "import", reason).path(shown).want(wanted, got);
  };
  const std::string text = checkpoint::read_text(from, path, checkpoint::kMaxJsonBytes);
  Found found;
  found.steps.resize(store.profile.shards.size());
  try {
    const nlohmann::json manifest = nlohmann::json::parse(text);
    if (const auto dtypes = manifest.find("dtypes"); dtypes != manifest.end()) {
      const char* names[] = {"main", "exp_avg", "exp_avg_sq"};
      for (std::uint32_t s = 0; s < kSegments; ++s) {
        found.storage[s] = from_torch_name(dtypes->at(names[s]).get<std::string>(), shown);
      }
    }
    const nlohmann::json& buckets = manifest.at("buckets");
    if (buckets.size() != store.entries.size()) {
      throw mismatch("the layout has another number of buckets", store.entries.size(),
                     buckets.size());
    }
    for (std::uint32_t b = 0; b < store.entries.size(); ++b) {
      const auto numels = buckets[b].at("entry_numels").get<std::vector<std::uint64_t>>();
      const auto steps = buckets[b].at("steps").get<std::vector<std::uint64_t>>();
      const std::vector<std::uint64_t> groups = groups_of(store, b);
      if (numels.size() != store.entries[b].size()) {
        throw mismatch("the layout has another number of entries in bucket " + std::to_string(b),
                       store.entries[b].size(), numels.size());
      }
      if (steps.size() != groups.size()) {
        throw mismatch("the layout has another number of groups in bucket " + std::to_string(b),
                       groups.size(), steps.size());
      }
      for (std::size_t e = 0; e < numels.size(); ++e) {
        const std::uint32_t shard = store.entries[b][e];
        const Shard& live = store.profile.shards[shard];
        if (numels[e] != live.numel()) {
          throw mismatch("entry " + std::to_string(e) + " of bucket " + std::to_string(b) +
                             " has not as many elements as " + live.key,
                         live.numel(), numels[e]);
        }
        const auto group = std::find(groups.begin(), groups.end(), live.group_id);
        found.steps[shard] = steps[static_cast<std::size_t>(group - groups.begin())];
        found.completed = std::max(found.completed, found.steps[shard]);
      }
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(MILLPOND_E_CORRUPT, "import", error.what()).path(shown);
  }
  return found;
}

class StoreImport {
 public:
  StoreImport(checkpoint::FileSystem& from, const ReferenceStore& store, const FilesWork& work)
      : from_(from), store_(store), work_(work), found_(read_found(from, store)) {
    std::vector<ShardShape> shapes;
    for (const Shard& shard : store_.profile.shards) {
      shapes.push_back({shard.numel(), shard.host_bucket, false});
    }
    LayoutOptions layout;
    layout.block_elements = layout.tile_elements = kBlockElements;
    layout.bucket_elements = INT64_MAX;
    layout.storage = found_.storage;
    plan_ = make_plan(shapes, layout);
    for (std::uint32_t b = 0; b < store_.entries.size(); ++b) {
      const std::string path = store_.uid + "/" + checkpoint::bucket_file_name(b);
      files_.push_back(from_.open(path));
      const std::uint64_t wanted = reference_bytes(store_, b, found_.storage);
      if (const std::uint64_t size = files_.back()->size(); size != wanted) {
        throw Error(MILLPOND_E_CORRUPT, "import", "the file has another size than its entries need")
            .path(from_.shown(path))
            .at(std::min(size, wanted))
            .want(wanted, size);
      }
    }
  }

  checkpoint::StoreRecord write(checkpoint::FileSystem& to, const std::string& save_id) {
    checkpoint::StoreWriter writer(to, save_id,
                                   describe(store_.profile, plan_, found_.steps, found_.completed,
                                            store_.uid, [](const Bucket&) { return true; }));
    std::vector<std::byte> memory;
    std::uint64_t done = 0;
    for (const Tile& tile : plan_.tiles) {
      memory.assign(tile.total_bytes, std::byte{0});
      for (std::uint32_t s = 0; s < kSegments; ++s) {
        for (const Piece& piece : plan_.pieces_of(tile)) fill(tile, piece, s, memory.data());
        writer.write(tile.bucket, s, tile.first_block,
                     {memory.data() + tile.memory_offset[s], tile.bytes[s]});
        done += tile.bytes[s];
        work_.tell(done, plan_.state_bytes);
      }
    }
    return writer.finish();
  }
  std::uint64_t elements() const { return plan_.elements; }
  std::uint64_t bytes() const { return plan_.state_bytes; }

 private:
  // A tile is one block, and neither format has scales: items follow each other.
  void fill(const Tile& tile, const Piece& piece, std::uint32_t segment, std::byte* memory) {
    if (piece.count == 0) return;
    const Shard& shard = store_.profile.shards[piece.shard];
    const auto bucket = static_cast<std::uint32_t>(shard.host_bucket);
    const auto& entries = store_.entries[bucket];
    const auto entry = static_cast<std::size_t>(
        std::find(entries.begin(), entries.end(), piece.shard) - entries.begin());
    const std::uint64_t item = kernels::item_bytes(found_.storage[segment]);
    files_[bucket]->read(
        reference_offset(store_, bucket, found_.storage, segment, entry) + piece.shard_begin * item,
        {memory + tile.memory_offset[segment] + piece.tile_begin * item, piece.count * item});
  }

  checkpoint::FileSystem& from_;
  const ReferenceStore& store_;
  const FilesWork& work_;
  Found found_;
  Plan plan_;
  std::vector<std::unique_ptr<checkpoint::File>> files_;
};

}  // namespace

void import_reference(checkpoint::FileSystem& from, const std::string& layout,
                      checkpoint::FileSystem& to, const FilesWork& work) {
  const std::vector<ReferenceStore> stores = read_reference_layout(layout);
  const checkpoint::Saves saves = checkpoint::list_saves(to);
  checkpoint::Commit commit;
  commit.save_id = checkpoint::make_save_id();
  commit.sequence = saves.committed.empty() ? 1 : saves.committed.front().sequence + 1;
  std::uint64_t elements = 0, bytes = 0;
  try {
    for (const ReferenceStore& store : stores) {
      StoreImport import(from, store, work);
      checkpoint::StoreRecord record = import.write(to, commit.save_id);
      record.rank = rank_of(store.uid);
      commit.world_size = std::max(commit.world_size, record.rank + 1);
      commit.stores.push_back(std::move(record));
      elements += import.elements();
      bytes += import.bytes();
    }
    std::sort(commit.stores.begin(), commit.stores.end(), [](const auto& a, const auto& b) {
      return a.rank != b.rank ? a.rank < b.rank : a.uid < b.uid;
    });
    checkpoint::write_commit(to, commit, 0);
  } catch (...) {
    checkpoint::abandon(to, commit.save_id);
    throw;
  }
  const nlohmann::ordered_json answer = {{"save_id", commit.save_id},
                                         {"world_size", commit.world_size},
                                         {"stores", commit.stores.size()},
                                         {"elements", elements},
                                         {"bytes", bytes}};
  work.emit(answer.dump() + "\n");
}

}  // namespace millpond::plugin
