// B35: SIGKILL at system calls of a save over a good checkpoint, of all threads of the process, by
// ptrace. What loads afterwards is the old save or the new one, whole.
//
// 200 calls, spread over all; in the campaign every one. A killed process loses nothing that it has
// handed to the kernel, so the drive adds nothing but the time of its syncs: outside the campaign
// the files are in memory, where the machine has such a filesystem.
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "tests/checkpoint/saved_training.h"
#include "tests/store/campaign.h"

namespace millpond::tests {
namespace {

constexpr std::uint64_t kOldSteps = 2, kNewSteps = 4;
constexpr std::uint64_t kCases = 200;
constexpr const char* kOptions =
    "\"tile_elements\": 4096, \"bucket_elements\": 9000, \"host_memory_bytes\": 200000, "
    "\"update_threads\": 1, \"io_engine\": \"threads\", \"queue_depth\": 2";

// In the child: train, save, train, stop for the tracer, save again, end.
[[noreturn]] void child(const std::string& scratch, const std::string& path, int how_far) {
  Job job(scratch, kOptions);
  Training training(job, "s", usual_parameters());
  Status status;
  if (training.bind(&status) != MILLPOND_OK) _exit(2);
  const auto steps = [&](std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t number = first; number <= last; ++number) {
      if (training.step(training.make_step(number), &status) != MILLPOND_OK) _exit(3);
    }
  };
  steps(1, kOldSteps);
  if (save(training, path, &status) != MILLPOND_OK) _exit(4);
  steps(kOldSteps + 1, kNewSteps);
  if (how_far == 0) _exit(0);
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
  raise(SIGSTOP);
  if (save(training, path, &status) != MILLPOND_OK) _exit(5);
  kill(getpid(), SIGKILL);  // its scratch files go as they would in a crash
  _exit(6);
}

struct Ran {
  std::uint64_t calls = 0;
  bool killed = false;  // by the tracer, at the call that was asked for
  bool traced = true;
};

// Lets the child's save run and kills the process when it enters its system call `kill_at`.
Ran run_traced(const std::string& scratch, const std::string& path, std::uint64_t kill_at) {
  Ran ran;
  const pid_t process = fork();
  if (process == 0) child(scratch, path, 1);
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
      if (thread == process) break;
      continue;
    }
    long signal = 0;
    if (WSTOPSIG(how) == (SIGTRAP | 0x80)) {
      bool& in = inside[thread];
      in = !in;
      if (in && ran.calls++ == kill_at) {
        ran.killed = true;
        kill(process, SIGKILL);
        // Every thread, not the process alone: its end is told when its traced threads are reaped.
        for (pid_t dead = 0; dead >= 0 && dead != process;) {
          dead = waitpid(-1, &how, __WALL);
          if (WIFSTOPPED(how)) dead = 0;
        }
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

// The tests' directories are below `path` while it lives.
class Below {
 public:
  explicit Below(const char* path) {
    if (const char* now = std::getenv("TEST_TMPDIR")) before_ = now;
    if (access(path, W_OK) == 0) setenv("TEST_TMPDIR", path, 1);
  }
  ~Below() { before_ ? setenv("TEST_TMPDIR", before_->c_str(), 1) : unsetenv("TEST_TMPDIR"); }
  Below(const Below&) = delete;
  Below& operator=(const Below&) = delete;

 private:
  std::optional<std::string> before_;
};

TEST(TracedKill, B35_at_system_calls_of_a_save_leaves_the_old_save_or_the_new_one) {
  std::optional<Below> memory;
  if (!in_campaign()) memory.emplace("/dev/shm");
  TemporaryDirectory scratch;
  Status status;
  // What the two saves hold.
  std::vector<Everything> saved;
  for (const std::uint64_t steps : {kOldSteps, kNewSteps}) {
    Job job(scratch.path(), kOptions);
    Training training(job, "s", usual_parameters());
    ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
    for (std::uint64_t number = 1; number <= steps; ++number) {
      ASSERT_EQ(training.step(training.make_step(number), &status), MILLPOND_OK);
    }
    saved.push_back(everything(training));
  }
  TemporaryDirectory counted;
  const Ran whole = run_traced(scratch.path(), counted.path(), UINT64_MAX);
  if (!whole.traced) GTEST_SKIP() << "ptrace is not allowed here";
  ASSERT_GT(whole.calls, 100U);
  const std::vector<std::uint64_t> calls = some_of(whole.calls, kCases);
  std::uint64_t old_loads = 0, new_loads = 0, killed = 0;
  for (const std::uint64_t call : calls) {
    SCOPED_TRACE("killed at call " + std::to_string(call) + " of " + std::to_string(whole.calls));
    TemporaryDirectory path;
    killed += run_traced(scratch.path(), path.path(), call).killed ? 1 : 0;
    Job job(scratch.path(), kOptions);
    Training survivor(job, "s", usual_parameters(), 9);
    ASSERT_EQ(survivor.bind(&status), MILLPOND_OK) << status.text();
    ASSERT_EQ(load(survivor, path.path(), &status), MILLPOND_OK) << status.text();
    const Everything found = everything(survivor);
    const auto is = [&](const Everything& one) {
      return found.segments == one.segments && found.counters == one.counters;
    };
    ASSERT_TRUE(is(saved[0]) || is(saved[1])) << "a mixture";
    (is(saved[0]) ? old_loads : new_loads) += 1;
    // The next save works and leaves only itself; of the dead one's scratch nothing is left.
    ASSERT_EQ(save(survivor, path.path(), &status), MILLPOND_OK) << status.text();
    ASSERT_FALSE(only_save(path.path()).empty()) << "leftovers";
  }
  EXPECT_GE(killed, calls.size() * 9 / 10) << "calls differ from run to run, but not so much";
  EXPECT_GT(old_loads, 0U);
  EXPECT_GT(new_loads, 0U);
  RecordProperty("system_calls", static_cast<int>(whole.calls));
}

}  // namespace
}  // namespace millpond::tests
