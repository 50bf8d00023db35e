// A queue whose room is set aside beforehand: pushing never allocates.
#ifndef MILLPOND_PLUGIN_PIPELINE_FIXED_QUEUE_H_
#define MILLPOND_PLUGIN_PIPELINE_FIXED_QUEUE_H_

#include <cstddef>
#include <vector>

namespace millpond::plugin {

template <typename T>
class FixedQueue {
 public:
  // Room for `count` entries at once; forgets what is in the queue.
  void reserve(std::size_t count) {
    slots_.assign(count, T{});
    clear();
  }
  void clear() { head_ = size_ = 0; }
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  const T& front() const { return slots_[head_]; }
  void push(const T& value) {
    std::size_t tail = head_ + size_;
    if (tail >= slots_.size()) tail -= slots_.size();
    slots_[tail] = value;
    ++size_;
  }
  T pop() {
    T value = slots_[head_];
    if (++head_ == slots_.size()) head_ = 0;
    --size_;
    return value;
  }

 private:
  std::vector<T> slots_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PIPELINE_FIXED_QUEUE_H_
