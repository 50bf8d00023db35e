// Writes one store of a save: bucket files in exactly the layout of the scratch files, their sums,
// the manifest; each durable before the next names it. Whole blocks come in any order; nothing is
// kept but sums. What it wrote counts when a COMMIT.json names it.
#ifndef MILLPOND_CHECKPOINT_STORE_WRITER_H_
#define MILLPOND_CHECKPOINT_STORE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/commit.h"
#include "checkpoint/file_system.h"
#include "checkpoint/geometry.h"

namespace millpond::checkpoint {

class StoreWriter {
 public:
  // `manifest` says everything but file sizes, segment offsets and digests, which follow. Throws
  // Error(E_ARGUMENT) where it could not be read back: nothing was created then. `fs` is borrowed.
  StoreWriter(FileSystem& fs, const std::string& save_id, Manifest manifest);

  std::uint64_t total_bytes() const;  // of all bucket files
  const Manifest& manifest() const { return manifest_; }

  // Blocks from `first_block` on, one after another as in the file, of a segment that is in it.
  // Each block of the store must come once. A bucket file is synced and closed with its last block.
  void write(std::uint32_t bucket, std::uint32_t segment, std::uint64_t first_block,
             std::span<const std::byte> blocks);
  // The same for `count` blocks of zeros: moments that a tile does not have yet.
  void write_zeros(std::uint32_t bucket, std::uint32_t segment, std::uint64_t first_block,
                   std::uint64_t count);

  // A whole bucket file as it is, without copying: FileSystem::take_in. `sums` of all its blocks in
  // the order of the sums file. False, with nothing done, where it has to be copied.
  bool take_in(std::uint32_t bucket, int descriptor, const std::vector<std::uint64_t>& sums);
  // Where the bucket's bytes and sums are.
  const BucketGeometry& geometry(std::uint32_t bucket) const { return geometry_[bucket]; }

  // Sums, then the manifest, then the directories up to the base. Throws Error(E_INTERNAL) when a
  // block is missing. The record's rank is the caller's business.
  StoreRecord finish();

 private:
  struct OpenBucket {
    std::unique_ptr<File> file;
    std::vector<std::uint64_t> sums;
    std::vector<bool> written;
    std::uint64_t missing = 0;
  };
  OpenBucket& open_bucket(std::uint32_t bucket);
  void write_sums(std::uint32_t bucket, const std::vector<std::uint64_t>& sums);

  FileSystem& fs_;
  std::string save_id_, directory_;
  Manifest manifest_;
  std::uint64_t seed_;
  std::vector<BucketGeometry> geometry_;
  std::vector<OpenBucket> buckets_;
  std::uint64_t unfinished_ = 0;  // buckets
  std::vector<std::byte> zeros_;
};

// The bytes of a block of zeros in this format: scales of all-zero groups are 1.
std::vector<std::byte> zero_block(kernels::Storage storage, std::uint64_t elements);

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_STORE_WRITER_H_
