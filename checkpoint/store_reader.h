// Reads one store of a committed save. open() checks all structure before a byte of state is read:
// the manifest against the commit, sums files against the manifest, sizes of all files. Every block
// is checked against its sum when it is read. Nothing outside the save id's directory is opened.
#ifndef MILLPOND_CHECKPOINT_STORE_READER_H_
#define MILLPOND_CHECKPOINT_STORE_READER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/commit.h"
#include "checkpoint/file_system.h"
#include "checkpoint/geometry.h"

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
  // `fs` is borrowed. Memory: sums, and a handful of blocks.
  StoreReader(FileSystem& fs, const std::string& save_id, const StoreRecord& record);

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
  // Closes its files and forgets its blocks; they come back when they are wanted. For readers of
  // many stores, which take turns. Not beside read().
  void rest();

 private:
  struct CachedBlock {
    std::uint32_t bucket = UINT32_MAX, segment = 0;
    std::uint64_t block = 0, used = 0;
    std::vector<std::byte> bytes;
  };
  const CachedBlock& block(std::uint32_t bucket, std::uint32_t segment, std::uint64_t block);
  std::shared_ptr<File> bucket_file(std::uint32_t bucket);
  std::unique_ptr<File> open_sized(const std::string& name, std::uint64_t bytes);
  void read_sums(std::uint32_t bucket);

  FileSystem& fs_;
  std::string directory_;
  Manifest manifest_;
  std::uint64_t seed_ = 0;
  std::vector<BucketGeometry> geometry_;
  std::vector<std::vector<std::uint64_t>> sums_;  // by bucket
  // Segments of a tile are read in turn, reordered shards go back and forth a little.
  std::array<CachedBlock, 12> cache_;
  std::uint64_t clock_ = 0;
  struct OpenFile {
    std::uint32_t bucket = UINT32_MAX;
    std::uint64_t used = 0;
    std::shared_ptr<File> file;
  };
  std::mutex files_mutex_;
  std::array<OpenFile, 8> files_;
  std::uint64_t files_clock_ = 0;
};

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_STORE_READER_H_
