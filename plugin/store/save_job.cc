#include "plugin/store/save_job.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "checkpoint/saves.h"
#include "checkpoint/store_writer.h"
#include "plugin/core/blocked_signals.h"
#include "plugin/io/posix_file_system.h"
#include "plugin/store/snapshot_files.h"

namespace millpond::plugin {
struct SaveJob::State {
  SaveOrder order;
  std::shared_ptr<SaveProgress> progress;
  SaveResult result;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

SaveJob::SaveJob(SaveOrder order, std::shared_ptr<SaveProgress> progress)
    : state_(std::make_shared<State>()) {
  state_->order = std::move(order);
  state_->progress = std::move(progress);
  state_->progress->state = MILLPOND_SAVE_WRITING;
  const BlockedSignals blocked;
  thread_ = std::thread([state = state_] { run(*state); });
}

SaveJob::~SaveJob() {
  if (thread_.joinable()) thread_.join();
}

const Snapshot& SaveJob::snapshot() const { return *state_->order.snapshot; }

bool SaveJob::committing() const { return state_->order.sequence.has_value(); }

bool SaveJob::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

bool SaveJob::wait(std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, patience, [&] { return state_->done; });
}

void SaveJob::leave() {
  if (thread_.joinable()) thread_.detach();
}

const SaveResult& SaveJob::result() const { return state_->result; }

void SaveJob::run(State& state) {
  try {
    write(state);
  } catch (const Error& error) {
    state.result.failure = error;
  } catch (const std::exception& error) {
    state.result.failure = Error(MILLPOND_E_INTERNAL, "save_to", error.what());
  }
  state.order.snapshot->give_up();
  {
    const std::lock_guard lock(state.mutex);
    state.done = true;
    state.progress->state = state.result.failure ? MILLPOND_SAVE_FAILED : MILLPOND_SAVE_WRITTEN;
  }
  state.changed.notify_all();
}

void SaveJob::write(State& state) {
  SaveOrder& order = state.order;
  const std::string uid = order.manifest.uid;
  const auto warn_of = [&](const char* what, const auto& work) {
    try {
      work();
    } catch (const std::exception& error) {
      state.result.warnings.push_back(std::string(what) + ": " + error.what());
    }
  };
  std::unique_ptr<checkpoint::FileSystem> fs;
  try {
    fs = open_file_system(order.path, true);
    checkpoint::StoreWriter writer(*fs, order.save_id, std::move(order.manifest));
    SnapshotFiles files(*order.snapshot, writer, *state.progress, order.bytes_per_s);
    files.complete();
    checkpoint::remove_leftovers(*fs, order.leftovers);
    files.place();
    const checkpoint::StoreRecord record = writer.finish();
    state.result.written = {record.uid, record.manifest_bytes, record.manifest_digest};
    state.result.summary = "store " + uid + ": wrote save " + order.save_id + " below " +
                           order.path + ", " + std::to_string(writer.total_bytes()) + " bytes in " +
                           std::to_string(files.taken_in()) + " linked or cloned and " +
                           std::to_string(files.copied()) + " copied buckets";
    if (!order.sequence) return;
    checkpoint::write_commit(*fs, {order.save_id, *order.sequence, 1, {record}}, 0);
  } catch (...) {
    if (fs == nullptr) throw;
    warn_of("removing a failed save", [&] {
      if (order.sequence) {
        checkpoint::abandon(*fs, order.save_id);
      } else {
        fs->remove_tree(order.save_id + "/" + uid);
      }
    });
    throw;
  }
  warn_of("removing older saves", [&] { checkpoint::remove_others(*fs, order.save_id); });
}

}  // namespace millpond::plugin
