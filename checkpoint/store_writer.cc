#include "checkpoint/store_writer.h"

#include <cstring>

#include "checkpoint/block_sum.h"
#include "checkpoint/digest.h"
#include "checkpoint/saves.h"
#include "checkpoint/strict_json.h"
#include "millpond/error.hpp"

namespace millpond::checkpoint {
namespace {

// Sizes and offsets that follow from the rest.
void fill_layout(Manifest* manifest) {
  for (std::uint32_t b = 0; b < manifest->buckets.size(); ++b) {
    const BucketGeometry geometry = geometry_of(*manifest, b);
    manifest->buckets[b].file_bytes = geometry.file_bytes;
    manifest->buckets[b].segment_offset = geometry.offset;
    manifest->buckets[b].sums_digest = std::string(32, '0');
  }
}

}  // namespace

std::vector<std::byte> zero_block(kernels::Storage storage, std::uint64_t elements) {
  std::vector<std::byte> block(kernels::block_bytes(storage, elements));
  if (!kernels::is_scaled(storage)) return block;
  const float one = 1.0F;
  for (std::uint64_t group = 0; group < elements / kernels::kGroupElements; ++group) {
    std::memcpy(block.data() + kernels::scale_offset(storage, elements) + group * sizeof one, &one,
                sizeof one);
  }
  return block;
}

StoreWriter::StoreWriter(FileSystem& fs, const std::string& save_id, Manifest manifest)
    : fs_(fs),
      save_id_(save_id),
      directory_(save_id + "/" + manifest.uid),
      manifest_(std::move(manifest)),
      seed_(uid_seed(manifest_.uid)) {
  check_uid(manifest_.uid);
  if (!is_hex32(save_id)) {
    throw Error(MILLPOND_E_ARGUMENT, "save", "a save id has 32 lower-case hexadecimal digits")
        .field("save_id");
  }
  fill_layout(&manifest_);
  const std::string path = directory_ + "/" + kManifestName;
  try {
    parse_manifest(to_json(manifest_), fs_.shown(path));
  } catch (const Error& error) {
    throw Error(MILLPOND_E_ARGUMENT, "save",
                std::string("the store cannot be described by a manifest: ") + error.what())
        .path(fs_.shown(path));
  }
  for (std::uint32_t b = 0; b < manifest_.buckets.size(); ++b) {
    geometry_.push_back(geometry_of(manifest_, b));
  }
  buckets_.resize(manifest_.buckets.size());
  unfinished_ = buckets_.size();
  fs_.make_directories(directory_);
  for (std::uint32_t b = 0; b < buckets_.size(); ++b) {
    if (geometry_[b].sums == 0) {  // moments only, and none yet: an empty file
      const std::unique_ptr<File> file =
          fs_.create(directory_ + "/" + bucket_file_name(b), geometry_[b].file_bytes);
      file->sync_data();
      write_sums(b, {});
    }
  }
}

std::uint64_t StoreWriter::total_bytes() const {
  std::uint64_t total = 0;
  for (const BucketGeometry& geometry : geometry_) total += geometry.file_bytes;
  return total;
}

StoreWriter::OpenBucket& StoreWriter::open_bucket(std::uint32_t bucket) {
  OpenBucket& open = buckets_[bucket];
  if (open.file == nullptr && open.written.empty()) {
    open.file =
        fs_.create(directory_ + "/" + bucket_file_name(bucket), geometry_[bucket].file_bytes);
    open.sums.resize(geometry_[bucket].sums);
    open.written.resize(geometry_[bucket].sums);
    open.missing = geometry_[bucket].sums;
  }
  return open;
}

void StoreWriter::write(std::uint32_t bucket, std::uint32_t segment, std::uint64_t first_block,
                        std::span<const std::byte> blocks) {
  OpenBucket& open = open_bucket(bucket);
  const BucketGeometry& geometry = geometry_[bucket];
  const std::string path = directory_ + "/" + bucket_file_name(bucket);
  const std::uint64_t begin =
      geometry.offset[segment] + block_offset(manifest_, segment, first_block);
  std::uint64_t at = 0, block = first_block;
  while (at < blocks.size()) {
    const std::uint64_t size =
        block >= geometry.blocks || !geometry.present[segment]
            ? 0
            : kernels::block_bytes(manifest_.storage[segment],
                                   elements_of_block(manifest_, bucket, block));
    const std::uint64_t sum = geometry.first_sum[segment] + block;
    if (size == 0 || size > blocks.size() - at || open.file == nullptr || open.written[sum]) {
      throw Error(MILLPOND_E_INTERNAL, "save", "a block that does not belong into the file")
          .path(fs_.shown(path))
          .at(begin + at);
    }
    open.sums[sum] = block_sum(seed_, bucket, segment, block, blocks.data() + at, size);
    open.written[sum] = true;
    --open.missing;
    at += size;
    ++block;
  }
  open.file->write(begin, blocks);
  if (open.missing > 0) return;
  open.file->sync_data();
  open.file.reset();
  write_sums(bucket, open.sums);
  open.sums = {};
}

bool StoreWriter::take_in(std::uint32_t bucket, int descriptor,
                          const std::vector<std::uint64_t>& sums) {
  const std::string path = directory_ + "/" + bucket_file_name(bucket);
  const BucketGeometry& geometry = geometry_[bucket];
  OpenBucket& open = buckets_[bucket];
  if (!open.written.empty() || sums.size() != geometry.sums) {
    throw Error(MILLPOND_E_INTERNAL, "save", "a file that does not belong to the bucket")
        .path(fs_.shown(path))
        .want(geometry.sums, sums.size());
  }
  std::unique_ptr<File> file = fs_.take_in(path, descriptor);
  if (file == nullptr) return false;
  if (const std::uint64_t size = file->size(); size != geometry.file_bytes) {
    throw Error(MILLPOND_E_INTERNAL, "save", "a scratch file of another size than its bucket's")
        .path(fs_.shown(path))
        .want(geometry.file_bytes, size);
  }
  file->sync();  // its bytes, its size, and the link itself
  file.reset();  // one descriptor fewer while the sums are written
  open.written.resize(geometry.sums, true);
  write_sums(bucket, sums);
  return true;
}

void StoreWriter::write_zeros(std::uint32_t bucket, std::uint32_t segment,
                              std::uint64_t first_block, std::uint64_t count) {
  for (std::uint64_t block = first_block; block < first_block + count; ++block) {
    const std::uint64_t elements = elements_of_block(manifest_, bucket, block);
    write(bucket, segment, block, zero_block(manifest_.storage[segment], elements));
  }
}

void StoreWriter::write_sums(std::uint32_t bucket, const std::vector<std::uint64_t>& sums) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(sums));
  const std::unique_ptr<File> file =
      fs_.create(directory_ + "/" + sums_file_name(bucket), bytes.size());
  if (!bytes.empty()) file->write(0, bytes);
  file->sync();
  manifest_.buckets[bucket].sums_digest =
      digest({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  --unfinished_;
}

StoreRecord StoreWriter::finish() {
  if (unfinished_ > 0) {
    throw Error(MILLPOND_E_INTERNAL, "save", "buckets whose blocks did not all come")
        .path(fs_.shown(directory_))
        .want(buckets_.size(), buckets_.size() - unfinished_);
  }
  const std::string text = to_json(manifest_);
  replace_file(fs_, directory_ + "/" + kManifestName, text, ".tmp");
  for (std::string at = directory_; !at.empty();) {
    const std::size_t slash = at.rfind('/');
    at.erase(slash == std::string::npos ? 0 : slash);
    fs_.sync_directory(at);
  }
  return {0, manifest_.uid, text.size(), digest(text)};
}

}  // namespace millpond::checkpoint
