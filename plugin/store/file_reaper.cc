#include "plugin/store/file_reaper.h"

#include <fcntl.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "plugin/core/blocked_signals.h"
#include "plugin/io/reopen.h"

namespace millpond::plugin {
namespace {

// Cut at once: 15 ms on a drive that needs 0.25 s for a GiB.
constexpr std::uint64_t kPieceBytes = 64u << 20;
// A pause waits this long for a cut; what takes longer hangs.
constexpr std::chrono::milliseconds kMostPauseWait{50};

struct Dying {
  Fd file;
  Others others = Others::kPerhaps;
};

}  // namespace

struct FileReaper::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Dying> files;
  bool busy = false;     // one has been taken out and is not closed yet
  bool cutting = false;  // the kernel is at it
  bool paused = false;
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

void FileReaper::close(Fd file, Others others) {
  if (!file) return;
  const std::lock_guard lock(state_->mutex);
  try {
    state_->files.push_back({std::move(file), others});
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

FileReaper::Pause::Pause(FileReaper& reaper) : reaper_(reaper) {
  std::unique_lock lock(reaper_.state_->mutex);
  reaper_.state_->paused = true;
  reaper_.state_->changed.wait_for(lock, kMostPauseWait, [&] { return !reaper_.state_->cutting; });
}

FileReaper::Pause::~Pause() {
  {
    const std::lock_guard lock(reaper_.state_->mutex);
    reaper_.state_->paused = false;
  }
  reaper_.state_->changed.notify_all();
}

void FileReaper::run(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.stop || !state.files.empty(); });
    if (state.files.empty()) return;
    Dying dying = std::move(state.files.back());
    state.files.pop_back();
    state.busy = true;
    for (bool more = true; more;) {
      state.changed.wait(lock, [&] { return !state.paused; });
      state.cutting = true;
      lock.unlock();
      more = dying.others == Others::kNobody && cut(dying.file, kPieceBytes);
      if (!more) dying.file = Fd();
      lock.lock();
      state.cutting = false;
      state.changed.notify_all();
    }
    state.busy = false;
    state.changed.notify_all();
  }
}

}  // namespace millpond::plugin
