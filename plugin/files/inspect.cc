#include "plugin/files/inspect.h"

#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/geometry.h"
#include "checkpoint/saves.h"
#include "checkpoint/store_reader.h"

namespace millpond::plugin {
namespace {

using Document = nlohmann::ordered_json;

struct Seen {
  std::vector<std::uint64_t> global_shape;
  bool moments_only = false;
  std::uint64_t step = 0, elements = 0, stores = 0;
};

Document describe_store(const checkpoint::StoreRecord& record,
                        const checkpoint::Manifest& manifest) {
  std::uint64_t bytes = 0, elements = 0;
  for (const auto& bucket : manifest.buckets) bytes += bucket.file_bytes;
  for (const auto& shard : manifest.shards) elements += shard.flat_end - shard.flat_begin;
  Document topology = Document::object();
  for (const auto& axis : manifest.topology) topology[axis.name] = {axis.rank, axis.size};
  return {{"rank", record.rank},
          {"uid", record.uid},
          {"writer", manifest.writer},
          {"step", manifest.step},
          {"main", kernels::storage_name(manifest.storage[0])},
          {"exp_avg", kernels::storage_name(manifest.storage[1])},
          {"exp_avg_sq", kernels::storage_name(manifest.storage[2])},
          {"topology", topology},
          {"groups", manifest.groups.size()},
          {"buckets", manifest.buckets.size()},
          {"shards", manifest.shards.size()},
          {"elements", elements},
          {"bytes", bytes}};
}

}  // namespace

void inspect_save(checkpoint::FileSystem& fs, const std::string& save_id, const FilesWork& work) {
  const checkpoint::Saves saves = checkpoint::list_saves(fs);
  const checkpoint::Commit commit = checkpoint::find_save(fs, save_id);
  Document head = {{"save_id", commit.save_id},       {"sequence", commit.sequence},
                   {"world_size", commit.world_size}, {"saves", Document::array()},
                   {"unreadable", saves.unreadable},  {"uncommitted", saves.uncommitted}};
  for (const auto& other : saves.committed) {
    head["saves"].push_back({{"save_id", other.save_id}, {"sequence", other.sequence}});
  }
  std::string text = head.dump();
  text.pop_back();
  work.emit(text + ", \"stores\": [");
  std::map<std::string, Seen> parameters;
  std::uint64_t bytes = 0, elements = 0, done = 0;
  const char* before = "\n";
  for (const checkpoint::StoreRecord& record : commit.stores) {
    const checkpoint::Manifest manifest = checkpoint::read_manifest(fs, commit.save_id, record);
    for (const auto& shard : manifest.shards) {
      Seen& seen = parameters[shard.key];
      seen.global_shape = shard.global_shape;
      seen.moments_only = shard.moments_only;
      seen.step = std::max(seen.step, shard.step);
      seen.elements += shard.flat_end - shard.flat_begin;
      ++seen.stores;
    }
    const Document store = describe_store(record, manifest);
    bytes += store.at("bytes").get<std::uint64_t>();
    elements += store.at("elements").get<std::uint64_t>();
    work.emit(before + store.dump());
    before = ",\n";
    work.tell(++done, commit.stores.size());
  }
  work.emit("], \"parameters\": [");
  before = "\n";
  for (const auto& [key, seen] : parameters) {
    const Document row = {{"key", key},
                          {"global_shape", seen.global_shape},
                          {"kind", seen.moments_only ? "moments_only" : "main_and_moments"},
                          {"step", seen.step},
                          {"elements", seen.elements},
                          {"stores", seen.stores}};
    work.emit(before + row.dump());
    before = ",\n";
  }
  work.emit("], \"elements\": " + std::to_string(elements) +
            ", \"bytes\": " + std::to_string(bytes) + "}\n");
}

}  // namespace millpond::plugin
