#include "host_adapters/processes/ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "millpond/error.hpp"

namespace millpond::processes {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kGrace(10);  // to end in, after another has failed

class Family {
 public:
  Family(Meeting& meeting, const std::function<void(std::string_view)>& tell)
      : meeting_(meeting), tell_(tell) {}
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;
  ~Family() {
    for (const pid_t pid : pids_) {
      if (pid <= 0) continue;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  void start(std::uint32_t rank, const std::function<int(std::uint32_t)>& body) {
    std::fflush(nullptr);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) {
      throw Error(MILLPOND_E_IO, "start rank " + std::to_string(rank), "fork failed").os(errno);
    }
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);  // it ended before the line above
      pids_.clear();
      std::exit(body(rank));  // NOLINT(concurrency-mt-unsafe): the child has one thread
    }
    pids_.push_back(pid);
    tell_("rank " + std::to_string(rank) + " is process " + std::to_string(pid));
  }

  int wait() {
    for (std::size_t running = pids_.size(); running != 0;) {
      const std::size_t before = running;
      for (std::uint32_t rank = 0; rank < pids_.size(); ++rank) {
        int status = 0;
        if (pids_[rank] == 0 || waitpid(pids_[rank], &status, WNOHANG) == 0) continue;
        pids_[rank] = 0;
        --running;
        ended(rank, status);
      }
      if (!failed_ && !meeting_.broken().empty()) fail(1, meeting_.broken());
      if (failed_ && !killed_ && Clock::now() > deadline_) {
        tell_("the other ranks do not end: killed");
        for (const pid_t pid : pids_) {
          if (pid > 0) kill(pid, SIGKILL);
        }
        killed_ = true;
      }
      if (running == before) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return exit_code_;
  }

 private:
  void ended(std::uint32_t rank, int status) {
    std::string how;
    int code = 1;
    if (WIFEXITED(status)) {
      code = WEXITSTATUS(status);
      how = "ended with exit code " + std::to_string(code);
    } else {
      how = std::string("was ended by signal ") + std::to_string(WTERMSIG(status)) + " (" +
            strsignal(WTERMSIG(status)) + ")";
    }
    meeting_.mark_ended(rank, how);
    if (code != 0) fail(code, "rank " + std::to_string(rank) + " " + how);
  }

  // The others learn of the first failure where they wait next; what they do then takes moments.
  void fail(int code, const std::string& why) {
    tell_(why);
    if (failed_) return;
    exit_code_ = code;
    failed_ = true;
    deadline_ = Clock::now() + kGrace;
  }

  Meeting& meeting_;
  const std::function<void(std::string_view)>& tell_;
  std::vector<pid_t> pids_;  // by rank; 0: ended
  bool failed_ = false;
  Clock::time_point deadline_;  // until when the others may take to end, after a failure
  bool killed_ = false;
  int exit_code_ = 0;
};

}  // namespace

int run_ranks(Meeting& meeting, const std::function<int(std::uint32_t)>& body,
              const std::function<void(std::string_view)>& tell) {
  if (meeting.ranks() == 1) return body(0);
  Family family(meeting, tell);
  for (std::uint32_t rank = 0; rank < meeting.ranks(); ++rank) family.start(rank, body);
  return family.wait();
}

}  // namespace millpond::processes
