// save_to: the state is frozen here and now, a job writes it (save_job.h).
#include "plugin/store/save.h"

#include <chrono>
#include <utility>

#include "checkpoint/saves.h"
#include "plugin/io/posix_file_system.h"
#include "plugin/store/runtime.h"
#include "plugin/store/save_job.h"
#include "plugin/store/store.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kSaveFlags =
    MILLPOND_IO_BACKGROUND | MILLPOND_IO_COMMIT | MILLPOND_IO_FAIL_IF_BUSY;
constexpr std::chrono::milliseconds kBeat{50};

bool has_moments(const StreamedState& state, const Bucket& bucket) {
  for (std::uint32_t t = bucket.first_tile; t < bucket.first_tile + bucket.tiles; ++t) {
    if (state.moments_present(t)) return true;
  }
  return false;
}

}  // namespace

checkpoint::Manifest describe(const Profile& profile, const Plan& plan,
                              const std::vector<std::uint64_t>& steps, std::uint64_t completed,
                              const std::string& uid,
                              const std::function<bool(const Bucket&)>& moments) {
  checkpoint::Manifest manifest;
  manifest.writer = checkpoint::writer_name();
  manifest.uid = uid;
  manifest.step = completed;
  manifest.block_elements = plan.options.block_elements;
  manifest.storage = plan.options.storage;
  for (const Group& group : profile.groups) manifest.groups.push_back({group.id, group.key});
  for (const Axis& axis : profile.topology) {
    manifest.topology.push_back({axis.name, axis.rank, axis.size});
  }
  for (const Bucket& bucket : plan.buckets) {
    checkpoint::BucketRecord record;
    record.elements = bucket.elements;
    record.moments_only = bucket.moments_only;
    record.moments_present = moments(bucket);
    manifest.buckets.push_back(std::move(record));
  }
  for (std::size_t i = 0; i < profile.shards.size(); ++i) {
    const Shard& shard = profile.shards[i];
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
    record.step = steps[i];
    manifest.shards.push_back(std::move(record));
  }
  return manifest;
}

void Store::save_to(const millpond_io_args& args) {
  if ((args.flags & ~kSaveFlags) != 0) {
    throw Error(MILLPOND_E_ARGUMENT, "save_to", "flags that do not belong to save_to")
        .field("io_args.flags")
        .want(kSaveFlags, args.flags);
  }
  if ((args.flags & MILLPOND_IO_FAIL_IF_BUSY) != 0 && save_job_ != nullptr && !save_job_->done()) {
    throw Error(MILLPOND_E_BUSY, "save_to", "the save before is still being written")
        .path(uid_)
        .remedy("Wait for it (checkpoint/1's wait), or leave the flag FAIL_IF_BUSY out");
  }
  const std::string path = text_of(args.path), id = text_of(args.save_id);
  const bool alone = (args.flags & MILLPOND_IO_COMMIT) != 0;
  if (alone) {
    save_alone(path, id);
  } else {
    save_part(path, id);
  }
  if ((args.flags & MILLPOND_IO_BACKGROUND) == 0) wait_save();
}

void Store::save_alone(const std::string& path, const std::string& id) {
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
  runtime_.save_begin(kAlone, path, {}, Leftovers::kLater);
  OpenSave own = *std::exchange(runtime_.open_save(), std::nullopt);  // the job closes it
  SaveOrder order;
  order.sequence = own.sequence;
  order.leftovers = std::move(own.leftovers);
  start_save(path, own.id, std::move(order));
}

void Store::save_part(const std::string& path, const std::string& id) {
  finish_save();
  std::optional<OpenSave>& open = runtime_.open_save();
  if (!open || open->id != id || open->path != path) {
    throw Error(MILLPOND_E_STATE, "save_to", "no save of this id and path has been begun")
        .path(path)
        .field("io_args.save_id")
        .remedy("Call save_begin first, with the same path, or set the COMMIT flag");
  }
  std::erase_if(open->written, [&](const auto& written) { return written.uid == uid_; });
  start_save(path, id, {});
}

ScratchFiles Store::files_to_go_on_in(StreamedState& state, SaveOrder& order) {
  try {
    return runtime_.next_files(state);
  } catch (const Error& error) {
    if (error.code() != MILLPOND_E_NO_SPACE || order.leftovers.empty()) throw;
  }
  // Killed attempts may have what is missing: their linked files lie beside the scratch files.
  checkpoint::remove_leftovers(*open_file_system(order.path, true),
                               std::exchange(order.leftovers, {}));
  return runtime_.next_files(state);
}

void Store::start_save(const std::string& path, const std::string& id, SaveOrder order) {
  save_progress_->cancel = false;
  save_progress_->done = 0;
  save_progress_->total = 0;
  save_failure_.reset();
  save_id_ = id;
  try {
    require_state("save_to");
    require_healthy("save_to");
    StreamedState& state = *held_->streamed;
    runtime_.host().progress("save", 0, state.plan().state_bytes);
    order.path = path;
    order.save_id = id;
    order.manifest = describe(held_->profile, state.plan(), held_->steps, held_->completed, uid_,
                              [&](const Bucket& bucket) { return has_moments(state, bucket); });
    order.bytes_per_s = runtime_.options().save_bytes_per_s;
    runtime_.retire_idle(state);
    ScratchFiles files = files_to_go_on_in(state, order);
    runtime_.prepare_idle(state.files().size() + files.files.size());
    order.snapshot =
        runtime_.pipeline().freeze(state, std::move(files.files), std::move(files.paths));
    const std::shared_ptr<Snapshot> snapshot = order.snapshot;
    try {
      save_job_ = std::make_unique<SaveJob>(std::move(order), save_progress_);
    } catch (...) {
      runtime_.pipeline().thaw(state, *snapshot, false);
      throw;
    }
  } catch (const Error& error) {
    save_failed(error);
    throw;
  } catch (const std::exception& error) {
    save_failed(Error(MILLPOND_E_INTERNAL, "save_to", error.what()));
    throw;
  }
}

void Store::save_failed(const Error& error) {
  save_progress_->state = MILLPOND_SAVE_FAILED;
  save_failure_ = error;
  std::optional<OpenSave>& open = runtime_.open_save();
  if (open && open->id == save_id_ && !open->failure) open->failure = error;
}

bool Store::saving_part() const { return save_job_ != nullptr && !save_job_->committing(); }

void Store::wait_save() {
  finish_save();
  if (save_failure_) throw Error(*save_failure_);
}

void Store::finish_save() {
  while (save_job_ != nullptr) {
    if (save_job_->wait(kBeat)) return collect_save();
    try {
      runtime_.host().progress("save", save_progress_->done, save_progress_->total);
    } catch (const Error&) {
      save_progress_->cancel = true;  // the job's own failure says so
    }
  }
}

void Store::end_save(bool give_up) {
  if (save_job_ == nullptr) return;
  if (give_up && !save_job_->committing()) save_progress_->cancel = true;
  const std::chrono::milliseconds patience = runtime_.patience();
  for (std::uint64_t seen = save_progress_->beats; !save_job_->wait(patience);) {
    if (const std::uint64_t now = save_progress_->beats; now != std::exchange(seen, now)) continue;
    runtime_.host().log(MILLPOND_LOG_ERROR,
                        "store " + uid_ + ": a save hangs in the kernel and is left to itself");
    save_job_->leave();
    save_job_.reset();
    save_progress_ = std::make_shared<SaveProgress>();  // the old one is the thread's
    return;
  }
  collect_save();
}

void Store::collect_save() {
  std::unique_ptr<SaveJob> job = std::move(save_job_);
  const SaveResult result = job->result();
  const bool committing = job->committing();
  if (held_ != nullptr && held_->streamed != nullptr) {
    runtime_.pipeline().thaw(*held_->streamed, job->snapshot(), !result.failure);
    job.reset();  // and its share in the files
    runtime_.retire_idle(*held_->streamed);
  }
  for (const std::string& warning : result.warnings) {
    runtime_.host().log(MILLPOND_LOG_WARNING, warning);
  }
  if (result.failure) return save_failed(*result.failure);
  runtime_.host().log(MILLPOND_LOG_INFO, result.summary);
  std::optional<OpenSave>& open = runtime_.open_save();
  if (!committing && open && open->id == save_id_) open->written.push_back(result.written);
}

}  // namespace millpond::plugin
