// What the plugin may call in the host, as functions. All are optional. Each runs on the thread
// that is inside a call of the runtime or one of its stores, and must not call back into them.
//
// An exception that leaves a callback never crosses the C boundary: the callback then counts as
// failed, the call that it interrupted fails, and the client throws the host's own exception there.
#ifndef MILLPOND_CLIENT_CALLBACKS_H_
#define MILLPOND_CLIENT_CALLBACKS_H_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "millpond/host.h"

namespace millpond::client {

struct Callbacks {
  // One line; level is MILLPOND_LOG_*.
  std::function<void(std::uint32_t level, std::string_view line)> log;
  // `done` of `total` bytes of "bind", "save", "load" or "refresh". False cancels the work.
  std::function<bool(std::string_view what, std::uint64_t done, std::uint64_t total)> progress;
  // The host's own Adam on one piece: for the arithmetic "host/1".
  std::function<void(const millpond_update_piece& piece)> update;
  // The mains given at bind that the host may free now.
  std::function<void(std::string_view uid, std::span<const std::uint64_t> shard_ids)> release_main;
  // Writes mains into a parameter that was bound without a model tensor.
  std::function<void(std::string_view uid, std::uint64_t shard_id, std::uint64_t begin,
                     std::span<const float> main)>
      copy_main_to_model;
  // `receive` is group.size times as long as `send`, ordered by rank.
  std::function<void(millpond_group group, std::span<const std::byte> send,
                     std::span<std::byte> receive)>
      allgather;
  // Device memory in the order of `stream`. Both or neither. Never called for CPU stores.
  std::function<void*(std::uint64_t bytes, std::uint64_t alignment, millpond_stream stream)> alloc;
  std::function<void(void* memory, std::uint64_t bytes, millpond_stream stream)> free;
};

// The C side of Callbacks. Its address is the plugin's `context`: it must outlive the runtime.
class CallbackBridge {
 public:
  explicit CallbackBridge(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}
  CallbackBridge(const CallbackBridge&) = delete;
  CallbackBridge& operator=(const CallbackBridge&) = delete;

  // Members of functions that the host did not give are NULL.
  millpond_host_api api();
  const Callbacks& callbacks() const { return callbacks_; }

  // The exception that left a callback since the last call, if any; forgets it.
  std::exception_ptr take_exception() { return std::exchange(exception_, nullptr); }
  void keep_exception(std::exception_ptr exception) {
    if (!exception_) exception_ = std::move(exception);
  }

 private:
  Callbacks callbacks_;
  std::exception_ptr exception_;
};

}  // namespace millpond::client

#endif  // MILLPOND_CLIENT_CALLBACKS_H_
