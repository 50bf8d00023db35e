#include "plugin/files/reference_export.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/saves.h"
#include "kernels/adam.h"
#include "plugin/files/reference_layout.h"
#include "plugin/files/shard_values.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kElementsWritten = 1 << 16;  // elements

std::string list(const std::vector<std::uint64_t>& numbers) {
  std::string text = "[";
  for (const std::uint64_t number : numbers) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  }
  return text + "]";
}

// As Python's json.dumps writes it, on one line without an end.
std::string manifest_text(const ReferenceStore& store, const ReferenceStorage& storage,
                          const std::vector<std::uint64_t>& steps) {
  std::string text = "{\"dtypes\": {\"main\": \"" + torch_name(storage[0]) + "\", \"exp_avg\": \"" +
                     torch_name(storage[1]) + "\", \"exp_avg_sq\": \"" + torch_name(storage[2]) +
                     "\"}, \"buckets\": [";
  for (std::uint32_t b = 0; b < store.entries.size(); ++b) {
    std::uint64_t numel = 0;
    std::vector<std::uint64_t> numels, of_groups;
    for (const std::uint32_t shard : store.entries[b]) {
      numels.push_back(store.profile.shards[shard].numel());
      numel += numels.back();
    }
    for (const std::uint64_t group : groups_of(store, b)) {
      const auto entry = std::find_if(
          store.entries[b].begin(), store.entries[b].end(),
          [&](std::uint32_t shard) { return store.profile.shards[shard].group_id == group; });
      of_groups.push_back(steps[*entry]);
    }
    text += (b == 0 ? "{\"numel\": " : ", {\"numel\": ") + std::to_string(numel) +
            ", \"entry_numels\": " + list(numels) + ", \"steps\": " + list(of_groups) +
            ", \"file\": \"" + checkpoint::bucket_file_name(b) + "\"}";
  }
  return text + "]}";
}

void write_entry(checkpoint::File& file, std::uint64_t offset, const ShardValues& values,
                 std::uint32_t shard, std::uint64_t numel, std::uint32_t segment,
                 kernels::Storage storage) {
  std::vector<float> some(kElementsWritten);
  std::vector<std::byte> stored(kernels::block_bytes(storage, kElementsWritten));
  for (std::uint64_t begin = 0; begin < numel; begin += kElementsWritten) {
    const std::uint64_t count = std::min(kElementsWritten, numel - begin);
    values.read(shard, segment, begin, count, some.data());
    kernels::encode(some.data(), {stored.data(), kElementsWritten, 0, storage}, count, false);
    file.write(offset + begin * kernels::item_bytes(storage),
               {stored.data(), count * kernels::item_bytes(storage)});
  }
}

}  // namespace

void export_reference(checkpoint::FileSystem& from, const std::string& save_id,
                      const std::string& layout, checkpoint::FileSystem& to,
                      const FilesWork& work) {
  const std::vector<ReferenceStore> stores = read_reference_layout(layout);
  const checkpoint::Commit commit = checkpoint::find_save(from, save_id);
  std::uint64_t bytes = 0, done = 0;
  for (const ReferenceStore& store : stores) {
    const ShardSources sources(from, commit, store.uid, store.profile);
    const ReferenceStorage storage = sources.stores().front()->manifest().storage;
    const ShardValues values(sources);
    // Its formats may be none of the reference's: before anything is written.
    const std::string manifest = manifest_text(store, storage, sources.counters(store.profile));
    to.make_directories(store.uid);
    for (std::uint32_t b = 0; b < store.entries.size(); ++b) {
      const std::uint64_t size = reference_bytes(store, b, storage);
      const auto file = to.create(store.uid + "/" + checkpoint::bucket_file_name(b), size);
      for (std::uint32_t s = 0; s < kSegments; ++s) {
        for (std::size_t e = 0; e < store.entries[b].size(); ++e) {
          const std::uint32_t shard = store.entries[b][e];
          write_entry(*file, reference_offset(store, b, storage, s, e), values, shard,
                      store.profile.shards[shard].numel(), s, storage[s]);
        }
      }
      file->sync_data();
      bytes += size;
    }
    checkpoint::replace_file(to, store.uid + "/manifest.json", manifest, ".tmp");
    work.tell(++done, stores.size());
  }
  const nlohmann::ordered_json answer = {{"stores", stores.size()}, {"bytes", bytes}};
  work.emit(answer.dump() + "\n");
}

}  // namespace millpond::plugin
