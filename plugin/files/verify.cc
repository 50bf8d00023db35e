#include "plugin/files/verify.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "checkpoint/saves.h"
#include "checkpoint/store_reader.h"
#include "plugin/core/buffers.h"
#include "plugin/core/thread_pool.h"

namespace millpond::plugin {
namespace {

constexpr std::uint32_t kReaders = 8;
constexpr std::uint64_t kBatch = 64;  // blocks between two beats

struct Place {
  std::uint32_t bucket = 0, segment = 0;
  std::uint64_t block = 0, bytes = 0;
};

// Throws for the first bad block of the batch, in file order.
void verify_batch(checkpoint::StoreReader& reader, const std::vector<Place>& batch,
                  ThreadPool& pool, Buffers& buffers) {
  pool.run_or_throw(batch.size(), [&](std::uint64_t i) {
    buffers.with(batch[i].bytes, [&](std::span<std::byte> bytes) {
      reader.read_block(batch[i].bucket, batch[i].segment, batch[i].block, bytes);
    });
  });
}

}  // namespace

void verify_save(checkpoint::FileSystem& fs, const std::string& save_id, const FilesWork& work) {
  const checkpoint::Commit commit = checkpoint::find_save(fs, save_id);
  // All manifests first: the sum of their files is what there is to do.
  std::uint64_t total = 0;
  for (const checkpoint::StoreRecord& record : commit.stores) {
    for (const auto& bucket : checkpoint::read_manifest(fs, commit.save_id, record).buckets) {
      total += bucket.file_bytes;
    }
  }
  ThreadPool pool(kReaders);
  Buffers buffers;
  std::uint64_t done = 0, blocks = 0;
  work.tell(0, total);
  for (const checkpoint::StoreRecord& record : commit.stores) {
    checkpoint::StoreReader reader(fs, commit.save_id, record);
    std::vector<Place> batch;
    const auto finish = [&] {
      verify_batch(reader, batch, pool, buffers);
      for (const Place& place : batch) done += place.bytes;
      blocks += batch.size();
      batch.clear();
      work.tell(done, total);
    };
    for (std::uint32_t b = 0; b < reader.manifest().buckets.size(); ++b) {
      const checkpoint::BucketGeometry& geometry = reader.geometry(b);
      for (std::uint32_t s = 0; s < checkpoint::kSegmentCount; ++s) {
        if (!geometry.present[s]) continue;
        for (std::uint64_t k = 0; k < geometry.blocks; ++k) {
          batch.push_back({b, s, k, reader.block_bytes(b, s, k)});
          if (batch.size() == kBatch) finish();
        }
      }
    }
    finish();
  }
  const nlohmann::ordered_json answer = {{"save_id", commit.save_id},
                                         {"stores", commit.stores.size()},
                                         {"blocks", blocks},
                                         {"bytes", done}};
  work.emit(answer.dump() + "\n");
}

}  // namespace millpond::plugin
