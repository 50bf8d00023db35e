#include "tests/checkpoint/traced_save.h"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>

namespace millpond::tests {
namespace {

void take_steps(Training& training, std::uint64_t first, std::uint64_t last) {
  Status status;
  for (std::uint64_t number = first; number <= last; ++number) {
    if (training.step(training.make_step(number), &status) != MILLPOND_OK) _exit(3);
  }
}

// In the child: train, save, train, stop for the tracer, save again, end.
[[noreturn]] void child(const std::string& scratch, const std::string& path) {
  Job job(scratch, kTracedOptions);
  Training training(job, "s", usual_parameters());
  Status status;
  if (training.bind(&status) != MILLPOND_OK) _exit(2);
  take_steps(training, 1, kOldSteps);
  if (save(training, path, &status) != MILLPOND_OK) _exit(4);
  take_steps(training, kOldSteps + 1, kNewSteps);
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
  raise(SIGSTOP);
  if (save(training, path, &status) != MILLPOND_OK) _exit(5);
  kill(getpid(), SIGKILL);  // its scratch files go as they would in a crash
  _exit(6);
}

// Every thread, not the process alone: its end is told when its traced threads are reaped.
void kill_and_reap(pid_t process) {
  int how = 0;
  kill(process, SIGKILL);
  for (pid_t dead = 0; dead >= 0 && dead != process;) {
    dead = waitpid(-1, &how, __WALL);
    if (WIFSTOPPED(how)) dead = 0;
  }
}

}  // namespace

Everything state_after(const std::string& scratch, std::uint64_t steps) {
  Job job(scratch, kTracedOptions);
  Training training(job, "s", usual_parameters());
  Status status;
  EXPECT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  for (std::uint64_t number = 1; number <= steps; ++number) {
    EXPECT_EQ(training.step(training.make_step(number), &status), MILLPOND_OK) << status.text();
  }
  return everything(training);
}

TracedSave run_traced_save(const std::string& scratch, const std::string& path,
                           std::uint64_t stop_at, const std::function<void()>& at_stop) {
  TracedSave ran;
  const pid_t process = fork();
  if (process == 0) child(scratch, path);
  int how = 0;
  EXPECT_EQ(waitpid(process, &how, 0), process);
  if (!WIFSTOPPED(how)) {
    ran.traced = !(WIFEXITED(how) && WEXITSTATUS(how) == 77);
    EXPECT_FALSE(ran.traced) << "the child ended before its second save: " << how;
    return ran;
  }
  // Threads of before the save (the pool, the engine) are not traced: the calls of a save are made
  // by the calling thread and by the job's, which is born traced.
  EXPECT_EQ(ptrace(PTRACE_SETOPTIONS, process, nullptr,
                   PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL),
            0);
  ptrace(PTRACE_SYSCALL, process, nullptr, nullptr);
  std::map<pid_t, bool> inside;
  for (;;) {
    const pid_t thread = waitpid(-1, &how, __WALL);
    if (thread < 0) break;
    if (WIFEXITED(how) || WIFSIGNALED(how)) {
      if (thread != process) continue;
      ran.reported = WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL;
      EXPECT_TRUE(ran.reported) << "the child's second save failed: " << how;
      break;
    }
    long signal = 0;
    if (WSTOPSIG(how) == (SIGTRAP | 0x80)) {
      bool& in = inside[thread];
      in = !in;
      if (in && ran.calls++ == stop_at) {
        ran.interrupted = true;
        if (at_stop) at_stop();
        kill_and_reap(process);
        break;
      }
    } else if (WSTOPSIG(how) != SIGTRAP && WSTOPSIG(how) != SIGSTOP) {
      signal = WSTOPSIG(how);
    }
    ptrace(PTRACE_SYSCALL, thread, nullptr, signal);
  }
  while (waitpid(-1, &how, __WALL | WNOHANG) > 0) {
  }
  return ran;
}

}  // namespace millpond::tests
