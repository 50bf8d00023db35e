#include "plugin/store/file_reaper.h"

#include <fcntl.h>
#include <pthread.h>
#include <csignal>
#include <exception>
#include <utility>

namespace millpond::plugin {

FileReaper::~FileReaper() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Fd FileReaper::second(int fd) { return Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

void FileReaper::close(Fd file) {
  if (!file) return;
  const std::lock_guard lock(mutex_);
  try {
    files_.push_back(std::move(file));
    if (!thread_.joinable()) {
      // The host's signals are for its own threads.
      sigset_t all, before;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      try {
        thread_ = std::thread([this] { run(); });
      } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
      }
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
  } catch (const std::exception&) {
    files_.clear();  // closed here and now
    return;
  }
  changed_.notify_all();
}

void FileReaper::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return files_.empty() && !busy_; });
}

void FileReaper::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !files_.empty(); });
    if (files_.empty()) return;
    std::vector<Fd> closing = std::exchange(files_, {});
    busy_ = true;
    lock.unlock();
    closing.clear();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace millpond::plugin
