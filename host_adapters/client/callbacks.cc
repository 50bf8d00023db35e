#include "millpond/client/callbacks.h"

#include <cstring>

namespace millpond::client {
namespace {

std::string_view view(millpond_str text) { return {text.ptr, static_cast<std::size_t>(text.len)}; }

// Runs `body` on the bridge behind `context`. False when an exception left it, which is kept.
template <typename Body>
bool guarded(void* context, Body body) {
  auto* bridge = static_cast<CallbackBridge*>(context);
  try {
    body(bridge->callbacks());
    return true;
  } catch (...) {
    bridge->keep_exception(std::current_exception());
    return false;
  }
}

// As above for callbacks that answer: `answer` keeps the plugin's preset failure after an
// exception.
template <typename Body>
void answered(void* context, std::int32_t* answer, Body body) {
  if (guarded(context, body)) *answer = MILLPOND_OK;
}

void log_line(void* context, std::uint32_t level, millpond_str line) {
  guarded(context, [&](const Callbacks& host) { host.log(level, view(line)); });
}

void progress(void* context, millpond_str what, std::uint64_t done, std::uint64_t total,
              std::int32_t* cancel) {
  bool go_on = false;
  guarded(context, [&](const Callbacks& host) { go_on = host.progress(view(what), done, total); });
  *cancel = go_on ? 0 : 1;
}

void update(void* context, const millpond_update_piece* piece, std::int32_t* answer) {
  answered(context, answer, [&](const Callbacks& host) { host.update(*piece); });
}

void release_main(void* context, millpond_str uid, const std::uint64_t* shard_ids,
                  std::uint64_t count, std::int32_t* answer) {
  answered(context, answer, [&](const Callbacks& host) {
    host.release_main(view(uid), {shard_ids, static_cast<std::size_t>(count)});
  });
}

void copy_main_to_model(void* context, millpond_str uid, std::uint64_t shard_id,
                        std::uint64_t begin, const float* main, std::uint64_t count,
                        std::int32_t* answer) {
  answered(context, answer, [&](const Callbacks& host) {
    host.copy_main_to_model(view(uid), shard_id, begin, {main, static_cast<std::size_t>(count)});
  });
}

void allgather(void* context, millpond_group group, const void* send, void* receive,
               std::uint64_t bytes, std::int32_t* answer) {
  answered(context, answer, [&](const Callbacks& host) {
    host.allgather(
        group, {static_cast<const std::byte*>(send), static_cast<std::size_t>(bytes)},
        {static_cast<std::byte*>(receive), static_cast<std::size_t>(bytes) * group.size});
  });
}

void alloc(void* context, std::uint64_t bytes, std::uint64_t alignment, millpond_stream stream,
           void** memory, std::int32_t* answer) {
  answered(context, answer,
           [&](const Callbacks& host) { *memory = host.alloc(bytes, alignment, stream); });
}

void free_memory(void* context, void* memory, std::uint64_t bytes, millpond_stream stream,
                 std::int32_t* answer) {
  answered(context, answer, [&](const Callbacks& host) { host.free(memory, bytes, stream); });
}

}  // namespace

millpond_host_api CallbackBridge::api() {
  millpond_host_api api;
  std::memset(&api, 0, sizeof(api));
  api.header = {sizeof(api), MILLPOND_TYPE_HOST_API};
  api.context = this;
  if (callbacks_.alloc && callbacks_.free) {
    api.alloc = alloc;
    api.free = free_memory;
  }
  if (callbacks_.release_main) api.release_main = release_main;
  if (callbacks_.copy_main_to_model) api.copy_main_to_model = copy_main_to_model;
  if (callbacks_.update) api.update = update;
  if (callbacks_.allgather) api.allgather = allgather;
  if (callbacks_.log) api.log = log_line;
  if (callbacks_.progress) api.progress = progress;
  return api;
}

}  // namespace millpond::client
