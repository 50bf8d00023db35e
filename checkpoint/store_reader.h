// Reads one store of a committed save. open() checks all structure before a byte of state is read:
// the manifest against the commit, sums files against the manifest, sizes of all files. Every block
// is checked against its sum when it is read. Nothing outside the save id's directory is opened.
#ifndef MILLPOND_CHECKPOINT_STORE_READER_H_
#define MILLPOND_CHECKPOINT_STORE_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/commit.h"
#include "checkpoint/file_system.h"
#include "checkpoint/geometry.h"
#include "checkpoint/read_cache.h"

namespace millpond::checkpoint {

// Stored elements of one shard inside one verified block: element `first` of the block is element
// `begin` of the shard. The bytes live until the reader reads on.
struct VerifiedRun {
  const std::byte* block = nullptr;
  std::uint64_t block_elements = 0;  // of this block: locates the scales
  std::uint64_t first = 0;           // multiple of 256
  std::uint64_t begin = 0;           // elements from the shard's first one
  std::uint64_t count = 0;
  kernels::Storage storage = kernels::Storage::kFp32;
};

// The store's manifest, checked against the commit and by itself. Throws Error(E_CORRUPT,
// E_MISSING, E_VERSION).
Manifest read_manifest(FileSystem& fs, const std::string& save_id, const StoreRecord& record);

class StoreReader {
 public:
  // `fs` is borrowed. Memory: sums, and what `cache` keeps, which readers of one file system may
  // share.
  StoreReader(FileSystem& fs, const std::string& save_id, const StoreRecord& record,
              std::shared_ptr<ReadCache> cache = std::make_shared<ReadCache>());

  const Manifest& manifest() const { return manifest_; }
  const std::string& directory() const { return directory_; }
  std::uint64_t total_bytes() const;  // of all bucket files

  // Whether the shard's moments are in the files; where not they are zero.
  bool moments_present(std::uint32_t shard) const;
  // Elements [begin, end) of manifest().shards[shard], counted from its first one, in order, as
  // runs. `begin` is a multiple of 256. Throws Error(E_CORRUPT) with file, offset, wanted, got.
  void read(std::uint32_t shard, std::uint32_t segment, std::uint64_t begin, std::uint64_t end,
            const std::function<void(const VerifiedRun&)>& run);
  // A whole block of a segment that is in the file, into `bytes`, checked. Any thread.
  std::uint64_t block_bytes(std::uint32_t bucket, std::uint32_t segment, std::uint64_t block) const;
  void read_block(std::uint32_t bucket, std::uint32_t segment, std::uint64_t block,
                  std::span<std::byte> bytes);
  const BucketGeometry& geometry(std::uint32_t bucket) const { return geometry_[bucket]; }
  // The same with the bytes forgotten. One thread.
  void verify_block(std::uint32_t bucket, std::uint32_t segment, std::uint64_t block);

 private:
  const std::byte* block(std::uint32_t bucket, std::uint32_t segment, std::uint64_t block);
  std::shared_ptr<File> bucket_file(std::uint32_t bucket);
  std::unique_ptr<File> open_sized(const std::string& name, std::uint64_t bytes);
  void read_sums(std::uint32_t bucket);

  FileSystem& fs_;
  std::string directory_;
  Manifest manifest_;
  std::uint64_t seed_ = 0;
  std::vector<BucketGeometry> geometry_;
  std::vector<std::vector<std::uint64_t>> sums_;  // by bucket
  std::shared_ptr<ReadCache> cache_;
};

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_STORE_READER_H_
