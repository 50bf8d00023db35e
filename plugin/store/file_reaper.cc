#include "plugin/store/file_reaper.h"

#include <fcntl.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "plugin/core/blocked_signals.h"

namespace millpond::plugin {
struct FileReaper::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Fd> files;
  bool busy = false;
  bool stop = false;
};

FileReaper::FileReaper(std::chrono::milliseconds patience)
    : state_(std::make_shared<State>()), patience_(patience) {}

FileReaper::~FileReaper() {
  if (!thread_.joinable()) return;
  const bool done = wait();
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  if (done) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

Fd FileReaper::second(int fd) { return Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

void FileReaper::start() {
  if (thread_.joinable()) return;
  const BlockedSignals blocked;
  thread_ = std::thread([state = state_] { run(*state); });
}

void FileReaper::prepare(std::size_t files) {
  const std::lock_guard lock(state_->mutex);
  state_->files.reserve(state_->files.size() + files);
  start();
}

void FileReaper::close(Fd file) {
  if (!file) return;
  const std::lock_guard lock(state_->mutex);
  try {
    state_->files.push_back(std::move(file));
    start();
  } catch (const std::exception&) {
    state_->files.clear();
    return;
  }
  state_->changed.notify_all();
}

bool FileReaper::wait() {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, patience_,
                                  [&] { return state_->files.empty() && !state_->busy; });
}

void FileReaper::run(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.stop || !state.files.empty(); });
    if (state.files.empty()) return;
    Fd closing = std::move(state.files.back());
    state.files.pop_back();
    state.busy = true;
    lock.unlock();
    closing = Fd();
    lock.lock();
    state.busy = false;
    state.changed.notify_all();
  }
}

}  // namespace millpond::plugin
