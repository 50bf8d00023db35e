#include "plugin/core/host.h"

#include <algorithm>
#include <utility>

#include "millpond/error.hpp"

namespace millpond::plugin {
namespace {

// Marks the time inside a callback, exceptions included.
class Inside {
 public:
  explicit Inside(bool& flag) : flag_(flag) { flag_ = true; }
  ~Inside() { flag_ = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  bool& flag_;
};

void check_answer(const char* callback, std::int32_t answer) {
  if (answer == MILLPOND_OK) return;
  const std::string reason =
      answer == MILLPOND_E_CALLBACK
          ? "the host's callback failed, or returned without writing its answer"
          : "the host's callback answered with code " + std::to_string(answer);
  throw Error(MILLPOND_E_CALLBACK, "callback", reason)
      .field(std::string("host_api.") + callback)
      .remedy("The host's own log has the cause");
}

Error not_offered(const char* callback, const char* what) {
  return Error(MILLPOND_E_CALLBACK, "callback", std::string("the host does not offer it: ") + what)
      .field(std::string("host_api.") + callback);
}

}  // namespace

Host::Host(const millpond_host_api& api, std::uint32_t log_level)
    : api_(api), log_level_(log_level) {}

void Host::log(std::uint32_t level, std::string line) {
  if (!wants(level)) return;
  const std::lock_guard lock(mutex_);
  lines_.emplace_back(level, std::move(line));
}

void Host::log_step(std::uint32_t level, std::string_view line) {
  if (!wants(level)) return;
  step_line_level_ = level;
  step_line_size_ = std::min(line.size(), step_line_.size());
  std::copy_n(line.data(), step_line_size_, step_line_.data());
}

void Host::deliver_log() {
  if (api_.log == nullptr) return;
  std::vector<std::pair<std::uint32_t, std::string>> lines;
  {
    const std::lock_guard lock(mutex_);
    lines.swap(lines_);
  }
  for (const auto& [level, line] : lines) {
    const Inside inside(inside_);
    api_.log(api_.context, level, {line.data(), line.size()});
  }
  const std::size_t size = std::exchange(step_line_size_, 0);
  if (size == 0) return;
  const Inside inside(inside_);
  api_.log(api_.context, step_line_level_, {step_line_.data(), size});
}

void* Host::alloc(std::uint64_t bytes, std::uint64_t alignment, millpond_stream stream) {
  if (api_.alloc == nullptr) throw not_offered("alloc", "device memory cannot be taken through it");
  void* memory = nullptr;
  std::int32_t answer = MILLPOND_E_CALLBACK;
  {
    const Inside inside(inside_);
    api_.alloc(api_.context, bytes, alignment, stream, &memory, &answer);
  }
  check_answer("alloc", answer);
  if (memory == nullptr && bytes != 0) {
    throw Error(MILLPOND_E_MEMORY, "alloc", "the host's callback gave no memory")
        .field("host_api.alloc")
        .want(bytes, 0)
        .remedy("Lower device_staging_bytes");
  }
  return memory;
}

void Host::free(void* memory, std::uint64_t bytes, millpond_stream stream) {
  if (api_.free == nullptr) throw not_offered("free", "device memory cannot be given back");
  std::int32_t answer = MILLPOND_E_CALLBACK;
  {
    const Inside inside(inside_);
    api_.free(api_.context, memory, bytes, stream, &answer);
  }
  check_answer("free", answer);
}

void Host::release_main(const std::string& uid, const std::vector<std::uint64_t>& shard_ids) {
  if (api_.release_main == nullptr || shard_ids.empty()) return;
  std::int32_t answer = MILLPOND_E_CALLBACK;
  {
    const Inside inside(inside_);
    api_.release_main(api_.context, {uid.data(), uid.size()}, shard_ids.data(), shard_ids.size(),
                      &answer);
  }
  check_answer("release_main", answer);
}

void Host::copy_main_to_model(const std::string& uid, std::uint64_t shard_id, std::uint64_t begin,
                              const float* main, std::uint64_t count) {
  if (api_.copy_main_to_model == nullptr) {
    throw not_offered("copy_main_to_model", "a shard without a model tensor needs it");
  }
  std::int32_t answer = MILLPOND_E_CALLBACK;
  {
    const Inside inside(inside_);
    api_.copy_main_to_model(api_.context, {uid.data(), uid.size()}, shard_id, begin, main, count,
                            &answer);
  }
  check_answer("copy_main_to_model", answer);
}

void Host::update(const millpond_update_piece& piece) {
  if (api_.update == nullptr) throw not_offered("update", "the arithmetic host/1 needs it");
  std::int32_t answer = MILLPOND_E_CALLBACK;
  {
    const Inside inside(inside_);
    api_.update(api_.context, &piece, &answer);
  }
  check_answer("update", answer);
}

void Host::allgather(millpond_group group, const void* send, void* receive, std::uint64_t bytes) {
  if (api_.allgather == nullptr) {
    throw not_offered("allgather", "a group of more than one rank needs it");
  }
  std::int32_t answer = MILLPOND_E_CALLBACK;
  {
    const Inside inside(inside_);
    api_.allgather(api_.context, group, send, receive, bytes, &answer);
  }
  check_answer("allgather", answer);
}

void Host::progress(const char* what, std::uint64_t done, std::uint64_t total) {
  deliver_log();
  if (api_.progress == nullptr) return;
  std::int32_t cancel = 0;
  {
    const Inside inside(inside_);
    api_.progress(api_.context, {what, std::char_traits<char>::length(what)}, done, total, &cancel);
  }
  if (cancel == 0) return;
  throw Error(MILLPOND_E_CANCELLED, what, "the host's progress callback cancelled the work")
      .field("host_api.progress")
      .want(total, done);
}

}  // namespace millpond::plugin
