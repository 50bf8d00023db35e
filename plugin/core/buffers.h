// Buffers that several threads use again and again: as many as are in use at once, each as large as
// the largest that it had to be. Memory of this size that is taken anew each time costs its page
// faults each time.
#ifndef MILLPOND_PLUGIN_CORE_BUFFERS_H_
#define MILLPOND_PLUGIN_CORE_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace millpond::plugin {

// Any thread.
class Buffers {
 public:
  // Calls use(span) with `bytes` of memory that has any contents. It is the caller's meanwhile.
  template <typename Use>
  void with(std::uint64_t bytes, Use&& use) {
    std::vector<std::byte> buffer = take();
    if (buffer.size() < bytes) buffer.resize(bytes);
    use(std::span<std::byte>(buffer.data(), bytes));
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(buffer));
  }

 private:
  std::vector<std::byte> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    std::vector<std::byte> buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }

  std::mutex mutex_;
  std::vector<std::vector<std::byte>> free_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_CORE_BUFFERS_H_
