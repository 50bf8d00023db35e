// A fixed team of threads that runs numbered tasks. Whoever comes first takes the next number, so a
// computation is the same for every number of threads exactly if each task is: it writes what no
// other task touches, in an order of its own.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_WORKERS_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_WORKERS_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace millpond::sample {

// How many processors this process may use.
std::size_t usable_processors();

class Workers {
 public:
  // `threads` in all, the caller of run included; 0: as many as the process may use.
  explicit Workers(std::size_t threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  std::size_t threads() const { return team_.size() + 1; }

  // Runs task(0) .. task(count - 1) and returns when all are done. Tasks must not throw.
  void run(std::size_t count, const std::function<void(std::size_t)>& task);

 private:
  void work();
  void take_tasks();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(std::size_t)>* task_ = nullptr;
  std::size_t count_ = 0;
  std::atomic<std::size_t> next_{0};
  std::uint64_t round_ = 0;
  std::size_t busy_ = 0;  // team members still in the round
  bool stop_ = false;
  std::vector<std::thread> team_;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_WORKERS_H_
