#include "plugin/store/save.h"

#include <span>

#include "checkpoint/store_writer.h"
#include "plugin/io/posix_file_system.h"
#include "plugin/store/tile_reader.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kSaveFlags =
    MILLPOND_IO_BACKGROUND | MILLPOND_IO_COMMIT | MILLPOND_IO_FAIL_IF_BUSY;

std::string text_of(const millpond_str& text) {
  return text.len == 0 ? std::string() : std::string(text.ptr, text.len);
}

bool any_moments(const StreamedState& state, const Bucket& bucket) {
  for (std::uint32_t t = bucket.first_tile; t < bucket.first_tile + bucket.tiles; ++t) {
    if (state.moments_present(t)) return true;
  }
  return false;
}

class StoreCopy {
 public:
  StoreCopy(HeldState& held, checkpoint::StoreWriter& writer, Host& host, SaveProgress& progress)
      : state_(*held.streamed), writer_(writer), host_(host), progress_(progress), reader_(state_) {
    progress_.total = writer_.total_bytes();
  }

  void run() {
    for (std::uint32_t t = 0; t < state_.plan().tiles.size(); ++t) {
      beat();
      copy(t);
    }
    beat();
  }

 private:
  void beat() {
    if (progress_.cancel) {
      throw Error(MILLPOND_E_CANCELLED, "save", "cancelled by checkpoint/1's cancel");
    }
    host_.progress("save", progress_.done, progress_.total);
  }

  void copy(std::uint32_t t) {
    const Tile& tile = state_.plan().tiles[t];
    const bool moments = state_.moments_present(t);
    const bool moments_in_file = writer_.manifest().buckets[tile.bucket].moments_present;
    const std::byte* memory = nullptr;
    if (moments || tile.bytes[MILLPOND_SEGMENT_MAIN] != 0) memory = reader_.load(t);
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      if (tile.bytes[s] == 0 || (s != MILLPOND_SEGMENT_MAIN && !moments_in_file)) continue;
      if (s == MILLPOND_SEGMENT_MAIN || moments) {
        writer_.write(tile.bucket, s, tile.first_block,
                      std::span(memory + tile.memory_offset[s], tile.bytes[s]));
      } else {
        writer_.write_zeros(tile.bucket, s, tile.first_block, tile.blocks);
      }
      progress_.done += tile.bytes[s];
    }
  }

  StreamedState& state_;
  checkpoint::StoreWriter& writer_;
  Host& host_;
  SaveProgress& progress_;
  TileReader reader_;
};

}  // namespace

checkpoint::Manifest describe(const HeldState& held, const std::string& uid) {
  const Plan& plan = held.streamed->plan();
  checkpoint::Manifest manifest;
  manifest.writer = checkpoint::writer_name();
  manifest.uid = uid;
  manifest.step = held.completed;
  manifest.block_elements = plan.options.block_elements;
  manifest.storage = plan.options.storage;
  for (const Group& group : held.profile.groups) manifest.groups.push_back({group.id, group.key});
  for (const Axis& axis : held.profile.topology) {
    manifest.topology.push_back({axis.name, axis.rank, axis.size});
  }
  for (const Bucket& bucket : plan.buckets) {
    checkpoint::BucketRecord record;
    record.elements = bucket.elements;
    record.moments_only = bucket.moments_only;
    record.moments_present = any_moments(*held.streamed, bucket);
    manifest.buckets.push_back(std::move(record));
  }
  for (std::size_t i = 0; i < held.profile.shards.size(); ++i) {
    const Shard& shard = held.profile.shards[i];
    checkpoint::ShardRecord record;
    record.key = shard.key;
    record.global_shape = shard.global_shape;
    record.box_offset = shard.box_offset;
    record.box_shape = shard.box_shape;
    record.flat_begin = shard.flat_begin;
    record.flat_end = shard.flat_end;
    if (shard.numel() != 0) {
      record.bucket = plan.places[i].bucket;
      record.offset = plan.places[i].offset;
    }
    record.group_id = shard.group_id;
    record.moments_only = shard.kind == ShardKind::kMomentsOnly;
    record.step = held.steps[i];
    manifest.shards.push_back(std::move(record));
  }
  return manifest;
}

OpenSave::Written write_store(HeldState& held, const std::string& uid, checkpoint::FileSystem& fs,
                              const std::string& save_id, Host& host, SaveProgress& progress) {
  try {
    checkpoint::StoreWriter writer(fs, save_id, describe(held, uid));
    StoreCopy(held, writer, host, progress).run();
    const checkpoint::StoreRecord record = writer.finish();
    return {record.uid, record.manifest_bytes, record.manifest_digest};
  } catch (...) {
    try {
      fs.remove_tree(save_id + "/" + uid);
    } catch (const std::exception& error) {
      host.log(MILLPOND_LOG_WARNING, std::string("removing a failed save: ") + error.what());
    }
    throw;
  }
}

void Store::save_to(const millpond_io_args& args) {
  if ((args.flags & ~kSaveFlags) != 0) {
    throw Error(MILLPOND_E_ARGUMENT, "save_to", "flags that do not belong to save_to")
        .field("io_args.flags")
        .want(kSaveFlags, args.flags);
  }
  const std::string path = text_of(args.path), id = text_of(args.save_id);
  if ((args.flags & MILLPOND_IO_COMMIT) == 0) return save_part(path, id);

  constexpr millpond_group kAlone{0, 0, 1};
  require_state("save_to");
  require_healthy("save_to");
  if (!id.empty()) {
    throw Error(MILLPOND_E_ARGUMENT, "save_to", "the COMMIT flag makes its own save id")
        .field("io_args.save_id");
  }
  if (runtime_.stores().size() != 1) {
    throw Error(MILLPOND_E_STATE, "save_to", "the COMMIT flag is for a runtime with one store")
        .want(1, runtime_.stores().size())
        .remedy("Use save_begin, save_to of each store, save_commit");
  }
  const std::string own = runtime_.save_begin(kAlone, path);
  try {
    save_part(path, own);
  } catch (const Error&) {
    try {
      runtime_.save_commit(kAlone, own);  // takes the attempt back
    } catch (const Error&) {
      // It fails because of the failure that is on its way.
    }
    throw;
  }
  runtime_.save_commit(kAlone, own);
}

void Store::save_part(const std::string& path, const std::string& id) {
  std::optional<OpenSave>& open = runtime_.open_save();
  if (!open || open->id != id || open->path != path) {
    throw Error(MILLPOND_E_STATE, "save_to", "no save of this id and path has been begun")
        .path(path)
        .field("io_args.save_id")
        .remedy("Call save_begin first, with the same path, or set the COMMIT flag");
  }
  save_progress_.cancel = false;
  save_progress_.done = 0;
  save_progress_.total = 0;
  save_progress_.state = MILLPOND_SAVE_WRITING;
  save_failure_.reset();
  std::erase_if(open->written, [&](const auto& written) { return written.uid == uid_; });
  try {
    require_state("save_to");
    require_healthy("save_to");
    // With the tier given back (phase/1) everything is in the files already.
    if (runtime_.pipeline().host_bytes() != 0) runtime_.pipeline().flush(*held_->streamed);
    const auto fs = open_file_system(path, true);
    open->written.push_back(write_store(*held_, uid_, *fs, id, runtime_.host(), save_progress_));
    save_progress_.state = MILLPOND_SAVE_WRITTEN;
  } catch (const Error& error) {
    save_failed(error);
    throw;
  } catch (const std::exception& error) {
    save_failed(Error(MILLPOND_E_INTERNAL, "save_to", error.what()));
    throw;
  }
}

void Store::save_failed(const Error& error) {
  save_progress_.state = MILLPOND_SAVE_FAILED;
  save_failure_ = error;
  std::optional<OpenSave>& open = runtime_.open_save();
  if (open && !open->failure) open->failure = error;
}

}  // namespace millpond::plugin
