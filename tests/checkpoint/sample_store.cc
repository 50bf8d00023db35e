#include "tests/checkpoint/sample_store.h"

#include <algorithm>
#include <random>

#include "checkpoint/block_sum.h"
#include "checkpoint/saves.h"
#include "checkpoint/store_reader.h"
#include "checkpoint/store_writer.h"
#include "tests/checkpoint/memory_file_system.h"

namespace millpond::checkpoint::testing {
namespace {

ShardRecord shard(std::string key, std::uint64_t rows, std::uint64_t columns, std::uint64_t begin,
                  std::uint64_t end, std::uint32_t bucket, std::uint64_t offset) {
  ShardRecord record;
  record.key = std::move(key);
  record.global_shape = {rows, columns};
  record.box_offset = {0, 0};
  record.box_shape = {rows, columns};
  record.flat_begin = begin;
  record.flat_end = end;
  record.bucket = bucket;
  record.offset = offset;
  return record;
}

std::vector<std::byte> noise(std::uint64_t bytes, std::mt19937_64* random) {
  std::vector<std::byte> filled(bytes);
  for (std::byte& byte : filled) byte = static_cast<std::byte>((*random)());
  return filled;
}

bool link_bucket(FileSystem& fs, StoreWriter& writer, const SampleStore& store,
                 std::uint32_t bucket) {
  auto* memory = dynamic_cast<MemoryFileSystem*>(&fs);
  if (memory == nullptr) return false;
  std::string file;
  std::vector<std::uint64_t> sums;
  for (std::uint32_t s = 0; s < 3; ++s) {
    const std::vector<std::byte>& bytes = store.bytes[bucket][s];
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::uint64_t at = 0;
    for (std::uint64_t k = 0; at < bytes.size(); ++k) {
      const std::uint64_t size = kernels::block_bytes(
          writer.manifest().storage[s], elements_of_block(writer.manifest(), bucket, k));
      sums.push_back(
          block_sum(uid_seed(writer.manifest().uid), bucket, s, k, bytes.data() + at, size));
      at += size;
    }
  }
  memory->offer(static_cast<int>(bucket), file);
  return writer.take_in(bucket, static_cast<int>(bucket), sums);
}

}  // namespace

SampleStore sample_store(std::uint64_t seed) {
  SampleStore store;
  Manifest& m = store.manifest;
  m.writer = "test 1";
  m.uid = kUid;
  m.step = 3 + seed;
  m.block_elements = 4096;
  m.storage = {kernels::Storage::kFp32, kernels::Storage::kBf16, kernels::Storage::kBf16};
  m.groups = {{7, "decay"}, {9, "no \"decay\" \u00e4"}};
  m.topology = {{"dp", 0, 1}, {"tp", 0, 2}};
  m.buckets.resize(3);
  m.buckets[0].elements = 4096 * 2 + 2048;
  m.buckets[0].moments_present = true;
  m.buckets[1].elements = 4096;
  m.buckets[2].elements = 512;
  m.buckets[2].moments_only = m.buckets[2].moments_present = true;
  m.shards = {shard("layer.0.weight", 100, 64, 0, 6400, 0, 0),
              shard("layer.0.\"bias\"\\\u00e4", 1, 7, 0, 7, 0, 6400),
              shard("layer.1.weight", 120, 30, 18, 3598, 0, 6656),
              shard("empty", 0, 3, 0, 0, 0, 0),
              shard("head", 64, 64, 0, 4096, 1, 0),
              shard("scale", 1, 300, 0, 300, 2, 0)};
  for (std::size_t i = 0; i < m.shards.size(); ++i) {
    m.shards[i].group_id = i % 2 == 0 ? 7 : 9;
    m.shards[i].step = 2 + seed + i;
  }
  m.shards[4].step = 0;
  m.shards[5].moments_only = true;

  std::mt19937_64 random(seed);
  store.bytes.resize(3);
  store.bytes[0] = {noise(10240 * 4, &random), noise(8192 * 2 + 4096, &random),
                    noise(8192 * 2 + 4096, &random)};
  store.bytes[1][0] = noise(4096 * 4, &random);
  store.bytes[2] = {std::vector<std::byte>{}, noise(4096, &random), noise(4096, &random)};
  return store;
}

StoreRecord write_store(FileSystem& fs, const std::string& save_id, const SampleStore& store) {
  StoreWriter writer(fs, save_id, store.manifest);
  for (std::uint32_t b = 0; b < store.bytes.size(); ++b) {
    // The first bucket is written; the others are linked where the file system can.
    if (b != 0 && link_bucket(fs, writer, store, b)) continue;
    for (std::uint32_t s = 0; s < 3; ++s) {
      // The first block by itself, the others together: as tiles would come.
      const std::span<const std::byte> all(store.bytes[b][s]);
      if (all.empty()) continue;
      const std::uint64_t first = std::min<std::uint64_t>(all.size(), s == 0 ? 4096 * 4 : 4096 * 2);
      writer.write(b, s, 0, all.first(first));
      if (all.size() > first) writer.write(b, s, 1, all.subspan(first));
    }
  }
  return writer.finish();
}

void save(FileSystem& fs, const std::string& save_id, const SampleStore& store, bool* committed) {
  const Saves saves = list_saves(fs);
  remove_leftovers(fs, saves.uncommitted);
  fs.make_directories(save_id);
  Commit commit;
  commit.save_id = save_id;
  commit.sequence = saves.committed.empty() ? 1 : saves.committed.front().sequence + 1;
  commit.world_size = 1;
  commit.stores.push_back(write_store(fs, save_id, store));
  write_commit(fs, commit, 0);
  if (committed != nullptr) *committed = true;
  remove_others(fs, save_id);
}

SampleStore load(FileSystem& fs, const std::string& save_id) {
  const Commit commit = find_save(fs, save_id);
  StoreReader reader(fs, commit.save_id, commit.stores.at(0));
  SampleStore store;
  store.manifest = reader.manifest();
  store.bytes.resize(store.manifest.buckets.size());
  for (std::uint32_t b = 0; b < store.bytes.size(); ++b) {
    const BucketGeometry geometry = geometry_of(store.manifest, b);
    for (std::uint32_t s = 0; s < 3; ++s) {
      if (!geometry.present[s]) continue;
      for (std::uint64_t k = 0; k < geometry.blocks; ++k) reader.verify_block(b, s, k);
      store.bytes[b][s].resize(geometry.bytes[s]);
      fs.open(reader.directory() + "/" + bucket_file_name(b))
          ->read(geometry.offset[s], store.bytes[b][s]);
    }
  }
  return store;
}

bool same(const SampleStore& a, const SampleStore& b) {
  if (a.bytes != b.bytes || a.manifest.step != b.manifest.step) return false;
  if (a.manifest.shards.size() != b.manifest.shards.size()) return false;
  for (std::size_t i = 0; i < a.manifest.shards.size(); ++i) {
    if (a.manifest.shards[i].key != b.manifest.shards[i].key ||
        a.manifest.shards[i].step != b.manifest.shards[i].step) {
      return false;
    }
  }
  return true;
}

}  // namespace millpond::checkpoint::testing
