// The host's callbacks, made safe: a missing or failing one becomes an Error, log lines of
// background threads wait for the thread that is inside a call, and being inside a callback is
// noticed.
#ifndef MILLPOND_PLUGIN_CORE_HOST_H_
#define MILLPOND_PLUGIN_CORE_HOST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millpond/host.h"

namespace millpond::plugin {

// The same characters; empty for one without a pointer.
inline std::string text_of(const millpond_str& text) {
  return text.len == 0 ? std::string() : std::string(text.ptr, text.len);
}

class Host {
 public:
  static constexpr std::size_t kStepLine = 512;

  // `api` is already checked and zero-filled to this build's size.
  Host(const millpond_host_api& api, std::uint32_t log_level);

  // Any thread. Lines above log_level are dropped; others wait for deliver_log.
  void log(std::uint32_t level, std::string line);
  // The same without allocating, for a line of each step: cut at kStepLine bytes; of several before
  // one deliver_log the last counts. On the thread inside a call.
  void log_step(std::uint32_t level, std::string_view line);
  bool wants(std::uint32_t level) const { return level <= log_level_ && api_.log != nullptr; }
  void deliver_log();  // on the thread inside a call, at its end and at long work's beats

  bool has_alloc() const { return api_.alloc != nullptr && api_.free != nullptr; }
  bool has_update() const { return api_.update != nullptr; }
  bool has_copy_main() const { return api_.copy_main_to_model != nullptr; }
  bool has_allgather() const { return api_.allgather != nullptr; }

  // Each throws Error(E_CALLBACK) naming the callback and its answer. release_main and progress may
  // be absent.
  void* alloc(std::uint64_t bytes, std::uint64_t alignment, millpond_stream stream);
  void free(void* memory, std::uint64_t bytes, millpond_stream stream);
  void release_main(const std::string& uid, const std::vector<std::uint64_t>& shard_ids);
  void copy_main_to_model(const std::string& uid, std::uint64_t shard_id, std::uint64_t begin,
                          const float* main, std::uint64_t count);
  void update(const millpond_update_piece& piece);
  void allgather(millpond_group group, const void* send, void* receive, std::uint64_t bytes);
  // Throws Error(E_CANCELLED) when the host cancels. Also delivers the log.
  void progress(const char* what, std::uint64_t done, std::uint64_t total);

  bool inside_callback() const { return inside_; }

 private:
  millpond_host_api api_;
  std::uint32_t log_level_;
  bool inside_ = false;
  std::mutex mutex_;
  std::vector<std::pair<std::uint32_t, std::string>> lines_;
  std::array<char, kStepLine> step_line_{};
  std::size_t step_line_size_ = 0;  // 0: none
  std::uint32_t step_line_level_ = 0;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_CORE_HOST_H_
