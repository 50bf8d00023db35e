// checkpoint/1. poll and cancel also serve another thread than the one that is inside save_to.
#include <cstdio>
#include <cstring>
#include <utility>

#include "plugin/exports/boundary.h"
#include "plugin/exports/entry.h"
#include "plugin/exports/extensions.h"
#include "plugin/exports/read_struct.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kLongestPath = 4096;

std::int32_t save_begin(millpond_runtime* runtime, millpond_group group, millpond_str path,
                        millpond_save_id* save_id, millpond_status* status) {
  millpond_save_id wanted = {};
  if (save_id != nullptr) std::swap(wanted, *save_id);
  return guarded(status, [&](std::uint32_t& flags) {
    RuntimeEntry entry(runtime, "save_begin", flags);
    check_group(group);
    if (save_id == nullptr) {
      throw Error(MILLPOND_E_ARGUMENT, "save_begin", "the pointer is NULL").field("save_id");
    }
    // The name that the host has chosen, or "".
    const std::string chosen(wanted.text, strnlen(wanted.text, sizeof wanted.text));
    const std::string id =
        entry->save_begin(group, std::string(read_str(path, "path", kLongestPath)), chosen);
    std::snprintf(save_id->text, sizeof(save_id->text), "%s", id.c_str());
  });
}

std::int32_t poll(millpond_store* handle, millpond_save_progress* progress,
                  millpond_status* status) {
  return guarded(status, [&] {
    Store& store = store_of(handle, "poll");
    if (store.runtime().forked()) {
      throw Error(MILLPOND_E_FORKED, "poll", "the caller is a forked child");
    }
    millpond_save_progress filled{};
    const SaveProgress& now = store.save_progress();
    filled.state = now.state.load();
    filled.bytes_done = now.done.load();
    filled.bytes_total = now.total.load();
    write_struct(filled, progress);
  });
}

std::int32_t wait(millpond_store* store, millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "wait", flags);
    entry->wait_save();
  });
}

std::int32_t cancel(millpond_store* handle, millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    Store& store = store_of(handle, "cancel");
    if (store.runtime().forked()) {
      throw Error(MILLPOND_E_FORKED, "cancel", "the caller is a forked child");
    }
    // Asked for without taking a turn, so that a save under way sees it; then its end is awaited.
    if (store.save_progress().state.load() == MILLPOND_SAVE_WRITING) {
      store.save_progress().cancel.store(true);
    }
    StoreEntry entry(handle, "cancel", flags);
    entry->finish_save();
    entry->save_progress().cancel.store(false);
  });
}

std::int32_t save_commit(millpond_runtime* runtime, millpond_group group, millpond_str save_id,
                         millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    RuntimeEntry entry(runtime, "save_commit", flags);
    check_group(group);
    entry->save_commit(group, std::string(read_str(save_id, "save_id")));
  });
}

std::int32_t load_commit(millpond_runtime* runtime, millpond_group group, millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    RuntimeEntry entry(runtime, "load_commit", flags);
    check_group(group);
    entry->load_commit(group);
  });
}

constexpr millpond_ext_checkpoint kCheckpoint{
    {sizeof(millpond_ext_checkpoint), MILLPOND_TYPE_EXT_CHECKPOINT},
    save_begin,
    poll,
    wait,
    cancel,
    save_commit,
    load_commit};

}  // namespace

const millpond_ext_checkpoint* checkpoint_extension() { return &kCheckpoint; }

}  // namespace millpond::plugin
