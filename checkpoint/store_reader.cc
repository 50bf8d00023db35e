#include "checkpoint/store_reader.h"

#include <algorithm>
#include <span>

#include "checkpoint/block_sum.h"
#include "checkpoint/digest.h"
#include "checkpoint/saves.h"
#include "checkpoint/strict_json.h"
#include "millpond/error.hpp"

namespace millpond::checkpoint {
namespace {

constexpr const char* kDamaged = "The file was damaged or replaced: use another checkpoint";

std::unique_ptr<File> open_sized(FileSystem& fs, const std::string& path, std::uint64_t bytes) {
  std::unique_ptr<File> file = fs.open(path);
  if (const std::uint64_t size = file->size(); size != bytes) {
    throw Error(MILLPOND_E_CORRUPT, "load",
                size < bytes ? "the file is cut short" : "the file is longer than it was written")
        .path(fs.shown(path))
        .at(std::min(size, bytes))
        .want(bytes, size)
        .remedy(kDamaged);
  }
  return file;
}

}  // namespace

Manifest read_manifest(FileSystem& fs, const std::string& save_id, const StoreRecord& record) {
  const std::string path = save_id + "/" + record.uid + "/" + kManifestName;
  if (record.manifest_bytes > kMaxJsonBytes) {
    throw Error(MILLPOND_E_CORRUPT, "load", "the commit names a manifest of an impossible size")
        .path(fs.shown(path))
        .at(0)
        .want(kMaxJsonBytes, record.manifest_bytes);
  }
  const std::unique_ptr<File> file = open_sized(fs, path, record.manifest_bytes);
  std::string text(record.manifest_bytes, '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  if (const std::string found = digest(text); found != record.manifest_digest) {
    throw Error(
        MILLPOND_E_CORRUPT, "load",
        "the manifest has the digest " + found + ", COMMIT.json says " + record.manifest_digest)
        .path(fs.shown(path))
        .at(0)
        .remedy(kDamaged);
  }
  Manifest manifest = parse_manifest(text, fs.shown(path));
  if (manifest.uid != record.uid) {
    throw Error(MILLPOND_E_CORRUPT, "load", "the manifest is of store " + manifest.uid)
        .path(fs.shown(path))
        .at(0);
  }
  return manifest;
}

StoreReader::StoreReader(FileSystem& fs, const std::string& save_id, const StoreRecord& record,
                         std::shared_ptr<ReadCache> cache)
    : fs_(fs),
      directory_(save_id + "/" + record.uid),
      manifest_(read_manifest(fs, save_id, record)),
      cache_(std::move(cache)) {
  seed_ = uid_seed(manifest_.uid);
  sums_.resize(manifest_.buckets.size());
  for (std::uint32_t b = 0; b < manifest_.buckets.size(); ++b) {
    geometry_.push_back(geometry_of(manifest_, b));
    open_sized(bucket_file_name(b), geometry_[b].file_bytes);
    read_sums(b);
  }
}

std::unique_ptr<File> StoreReader::open_sized(const std::string& name, std::uint64_t bytes) {
  return checkpoint::open_sized(fs_, directory_ + "/" + name, bytes);
}

void StoreReader::read_sums(std::uint32_t bucket) {
  const std::string name = sums_file_name(bucket);
  const std::unique_ptr<File> file = open_sized(name, geometry_[bucket].sums * 8);
  sums_[bucket].resize(geometry_[bucket].sums);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(sums_[bucket]));
  if (!bytes.empty()) file->read(0, bytes);
  const std::string found = digest({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (found != manifest_.buckets[bucket].sums_digest) {
    throw Error(MILLPOND_E_CORRUPT, "load",
                "the sums have the digest " + found + ", the manifest says " +
                    manifest_.buckets[bucket].sums_digest)
        .path(fs_.shown(directory_ + "/" + name))
        .at(0)
        .remedy(kDamaged);
  }
}

std::uint64_t StoreReader::total_bytes() const {
  std::uint64_t total = 0;
  for (const BucketGeometry& geometry : geometry_) total += geometry.file_bytes;
  return total;
}

bool StoreReader::moments_present(std::uint32_t shard) const {
  const ShardRecord& record = manifest_.shards[shard];
  return record.flat_begin != record.flat_end && manifest_.buckets[record.bucket].moments_present;
}

std::shared_ptr<File> StoreReader::bucket_file(std::uint32_t bucket) {
  const std::lock_guard lock(cache_->mutex);
  return cache_->files.get({directory_, bucket}, [&](std::shared_ptr<File>& file) {
    file = open_sized(bucket_file_name(bucket), geometry_[bucket].file_bytes);
  });
}

std::uint64_t StoreReader::block_bytes(std::uint32_t bucket, std::uint32_t segment,
                                       std::uint64_t block) const {
  return kernels::block_bytes(manifest_.storage[segment],
                              elements_of_block(manifest_, bucket, block));
}

void StoreReader::read_block(std::uint32_t bucket, std::uint32_t segment, std::uint64_t block,
                             std::span<std::byte> bytes) {
  const std::uint64_t offset =
      geometry_[bucket].offset[segment] + block_offset(manifest_, segment, block);
  bucket_file(bucket)->read(offset, bytes);
  const std::uint64_t got = block_sum(seed_, bucket, segment, block, bytes.data(), bytes.size());
  const std::uint64_t wanted = sums_[bucket][geometry_[bucket].first_sum[segment] + block];
  if (got == wanted) return;
  throw Error(MILLPOND_E_CORRUPT, "load",
              "the checksum of block " + std::to_string(block) + " of " + segment_name(segment) +
                  " (" + std::to_string(bytes.size()) + " bytes) is wrong")
      .path(fs_.shown(directory_ + "/" + bucket_file_name(bucket)))
      .at(offset)
      .want(wanted, got)
      .remedy(kDamaged);
}

const std::byte* StoreReader::block(std::uint32_t bucket, std::uint32_t segment,
                                    std::uint64_t block) {
  return cache_->blocks
      .get({directory_, bucket, segment, block},
           [&](std::vector<std::byte>& bytes) {
             bytes.resize(block_bytes(bucket, segment, block));
             read_block(bucket, segment, block, bytes);
           })
      .data();
}

void StoreReader::verify_block(std::uint32_t bucket, std::uint32_t segment, std::uint64_t index) {
  block(bucket, segment, index);
}

void StoreReader::read(std::uint32_t shard, std::uint32_t segment, std::uint64_t begin,
                       std::uint64_t end, const std::function<void(const VerifiedRun&)>& run) {
  const ShardRecord& record = manifest_.shards[shard];
  const BucketGeometry& geometry = geometry_[record.bucket];
  if (begin % kernels::kGroupElements != 0 || begin > end ||
      end > record.flat_end - record.flat_begin || !geometry.present[segment]) {
    throw Error(MILLPOND_E_INTERNAL, "load", "elements that are not in the files")
        .field(record.key)
        .want(record.flat_end - record.flat_begin, end);
  }
  while (begin < end) {
    const std::uint64_t in_bucket = record.offset + begin;
    const std::uint64_t index = in_bucket / manifest_.block_elements;
    VerifiedRun verified;
    verified.block = block(record.bucket, segment, index);
    verified.block_elements = elements_of_block(manifest_, record.bucket, index);
    verified.first = in_bucket % manifest_.block_elements;
    verified.begin = begin;
    verified.count = std::min(end - begin, verified.block_elements - verified.first);
    verified.storage = manifest_.storage[segment];
    run(verified);
    begin += verified.count;
  }
}

}  // namespace millpond::checkpoint
