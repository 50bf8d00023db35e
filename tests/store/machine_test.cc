// A real store on machines that refuse things, made for real: the same bits as everywhere.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/io/sandbox.h"
#include "tests/store/campaign.h"
#include "tests/store/required.h"
#include "tests/store/training.h"

namespace millpond::tests {
namespace {

using sandbox::mount_here;
using sandbox::refuse;
using sandbox::require;

std::vector<Parameter> few() {
  return {{"a", 60000, 0, 0},
          {"b", 30000, 2, 1, MILLPOND_DTYPE_FP16, MILLPOND_DTYPE_BF16, true},
          {"n", 9000, 0, 1, MILLPOND_DTYPE_FP32}};
}

constexpr char kSmall[] = "\"tile_elements\": 4096, \"host_memory_bytes\": 400000";

millpond_runtime_figures figures_of(Job& job) {
  millpond_runtime_figures figures{};
  figures.header = {sizeof(figures), MILLPOND_TYPE_RUNTIME_FIGURES};
  Status status;
  require_ok(reports().runtime(job.runtime, &figures, &status), status, "figures");
  return figures;
}

void require_equal(Training& training) {
  const std::string differs = training.models_differ() + training.state_differs();
  require(differs.empty(), differs);
  require(!testing::Test::HasFailure(), "a step failed: the lines above say how");
}

// Bind, steps, a save, steps, a load: everything that moves bytes.
void live(Job& job, const std::string& saves, const std::vector<Parameter>& parameters = few()) {
  Training training(job, "rank00000/opt0_0", parameters);
  Status status;
  require_ok(training.bind(&status), status, "bind");
  training.train(1, 4);
  const std::string path = saves + "/saved";
  millpond_io_args io = io_args(path);
  require_ok(table().save_to(training.store, &io, &status), status, "save_to");
  const std::vector<PlainParameter> saved = training.plain;
  const std::vector<std::uint8_t> own = training.models.back();
  training.train(5, 6);
  require_equal(training);
  io.flags = 0;
  require_ok(table().load_from(training.store, &io, &status), status, "load_from");
  training.plain = saved;
  training.models.back() = own;  // an fp32 parameter is the host's own to restore
  training.train(5, 9);
  require_equal(training);
  require_ok(job.destroy(&status), status, "destroy");
  training.store = nullptr;
}

class Machine : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(chmod(directory_.path().c_str(), 0777), 0); }
  std::string at(const char* name) const { return directory_.path() + "/" + name; }
  void limit(int what, rlim_t value) {
    const struct rlimit both = {value, value};
    require(setrlimit(static_cast<__rlimit_resource>(what), &both) == 0, "setrlimit");
  }
  // What the store lives through on a filesystem, with both engines, direct where it can and
  // buffered.
  void live_on(const std::string& root) {
    for (const char* engine : {"auto", "threads"}) {
      for (const char* direct : {"\"auto\"", "false"}) {
        Job job(root,
                std::string(kSmall) + ", \"io_engine\": \"" + engine + "\", \"direct\": " + direct);
        live(job, root);
        std::filesystem::remove_all(root + "/saved");
      }
    }
  }
  // Sixteen descriptors for a process with its three and the pipe of in_child(); what else it got
  // from whoever runs the tests does not count.
  void limit_descriptors() {
    std::size_t open = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator("/proc/self/fd")) {
      ++open;
    }
    limit(RLIMIT_NOFILE, 16 + (open - 5));  // the directory itself was the fifth
  }
  TemporaryDirectory directory_;
};

TEST_F(Machine, B08_io_uring_refused_by_seccomp) {
  for (const int error : {EPERM, ENOSYS}) {
    MILLPOND_IN_CHILD([&] {
      refuse({{SYS_io_uring_setup, error}});
      Job job(directory_.path(), kSmall);
      require(figures_of(job).engine == std::string("threads"), "threads");
      require(job.log_has(error == EPERM ? "EPERM" : "ENOSYS"), "one line says why");
      live(job, directory_.path());
      std::filesystem::remove_all(at("saved"));
    });
  }
}

// Memory that may be locked is short for the host tier: 64 KiB even for a trial, 4 MiB only for
// the region itself, which is known at the bind.
TEST_F(Machine, memlock_of_a_normal_user) {
  for (const rlim_t bytes : {rlim_t{64} << 10, rlim_t{4} << 20}) {
    MILLPOND_IN_CHILD([&] {
      sandbox::become_nobody();
      limit(RLIMIT_MEMLOCK, bytes);
      Job job(directory_.path(), "\"tile_elements\": 65536, \"host_memory_bytes\": 8000000");
      if (figures_of(job).engine == std::string("threads")) sandbox::skip("no io_uring here");
      Training training(job, "s", {{"a", 900000, 0, 0}});
      Status status;
      require_ok(training.bind(&status), status, "bind");
      require(figures_of(job).engine == std::string("io_uring_plain"), figures_of(job).engine);
      require(job.log_has("RLIMIT_MEMLOCK"), "one line says why");
      require(training.report.plan().engine_reason().find("RLIMIT_MEMLOCK") != std::string::npos,
              "the report says why: " + training.report.plan().engine_reason());
      training.train(1, 4);
      require_equal(training);
    });
  }
}

TEST_F(Machine, sixteen_descriptors) {
  MILLPOND_IN_CHILD([&] {
    limit_descriptors();
    Job job(directory_.path(), kSmall);
    live(job, directory_.path(), {{"a", 60000, 0, 0}});
  });
  if (kSanitized) GTEST_SKIP() << "the sanitizer needs descriptors for its own checks";
  // More buckets than descriptors: refused at the bind, with what to do, and nothing is left over.
  MILLPOND_IN_CHILD([&] {
    limit_descriptors();
    Job job(directory_.path(), std::string(kSmall) + ", \"bucket_elements\": 4096");
    std::vector<Parameter> many;
    for (int i = 0; i < 30; ++i) many.push_back({"p" + std::to_string(i), 4096, 0, 0});
    Training large(job, "large", many);
    Status status;
    require_code(large.bind(&status), MILLPOND_E_IO, status, "bind");
    require(status.native == EMFILE, status.text());
    require(std::string(status.message).find("RLIMIT_NOFILE") != std::string::npos, status.text());
    Training fits(job, "fits", {many[0]});
    require_ok(fits.bind(&status), status, "bind of what fits");
    fits.train(1, 3);
    require_equal(fits);
  });
}

TEST_F(Machine, B07_tmpfs_and_ramfs) {
  MILLPOND_IN_CHILD([&] {
    mount_here("tmpfs", at("tmpfs"), "size=32m");
    live_on(at("tmpfs"));
  });
  MILLPOND_IN_CHILD([&] {  // refuses O_DIRECT and fallocate
    mount_here("ramfs", at("ramfs"), "");
    live_on(at("ramfs"));
  });
}

TEST_F(Machine, overlay) {
  MILLPOND_IN_CHILD([&] {
    mount_here("tmpfs", at("disk"), "size=64m");
    for (const char* name : {"/lower", "/upper", "/work"}) {
      std::filesystem::create_directory(at("disk") + name);
    }
    mount_here("overlay", at("overlay"),
               "lowerdir=" + at("disk") + "/lower,upperdir=" + at("disk") +
                   "/upper,workdir=" + at("disk") + "/work");
    live_on(at("overlay"));
  });
}

TEST_F(Machine, xfs_on_a_loop_device) {
  MILLPOND_IN_CHILD([&] {
    sandbox::mount_loop("xfs", at("xfs"), 320);
    live_on(at("xfs"));
  });
}

void fill_up(const std::string& path) {
  std::ofstream filler(path, std::ios::binary);
  for (std::size_t piece = 1 << 20; piece != 0; piece /= 4) {
    const std::vector<char> block(piece, 'x');
    while (filler.write(block.data(), static_cast<std::streamsize>(piece)).flush()) {
    }
    filler.clear();
  }
}

void leave(const std::string& root, std::uint64_t bytes) {
  const std::uint64_t free = std::filesystem::space(root).available;
  const int most = open((root + "/most").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  require(most >= 0 && fallocate(most, 0, 0, static_cast<off_t>(free - bytes)) == 0, "fallocate");
  close(most);
}

// Reserved space is not written yet: its first writes must not need more on a filesystem that
// has become full since the bind.
TEST_F(Machine, B13_B14_a_small_ext4_or_xfs_that_is_full) {
  for (const auto& [type, mebibytes] : {std::pair("ext4", 16u), std::pair("xfs", 320u)}) {
    SCOPED_TRACE(type);
    MILLPOND_IN_CHILD([&, type = type, mebibytes = mebibytes] {
      sandbox::mount_loop(type, at(type), mebibytes);
      Job job(at(type), kSmall);
      leave(at(type), 8 << 20);
      Training large(job, "large", {{"a", 1 << 20, 0, 0}});
      Status status;
      require_code(large.bind(&status), MILLPOND_E_NO_SPACE, status, "bind");
      require(status.wanted == 12u << 20, status.text());
      require(status.got > 0 && status.got <= 8u << 20, status.text());
      require_ok(table().destroy(std::exchange(large.store, nullptr), &status), status, "destroy");
      Training training(job, "fits", few());
      require_ok(training.bind(&status), status, "bind of what fits");
      fill_up(at(type) + "/filler");
      training.train(1, 6);
      require_equal(training);
      const std::string path = at(type) + "/saved";
      millpond_io_args io = io_args(path);
      require_code(table().save_to(training.store, &io, &status), MILLPOND_E_NO_SPACE, status,
                   "save_to");
      require((status.flags & MILLPOND_STATUS_POISONED) == 0, "a failed save poisons nothing");
      training.train(7, 9);
      std::filesystem::remove(at(type) + "/filler");
      std::filesystem::remove(at(type) + "/most");
      require_ok(table().save_to(training.store, &io, &status), status, "save_to with space again");
      require_equal(training);
    });
  }
}

std::atomic<std::uint32_t> alarms{0};

TEST_F(Machine, an_alarm_each_millisecond) {
  for (const char* engine : {"auto", "threads"}) {
    SCOPED_TRACE(engine);
    MILLPOND_IN_CHILD([&] {
      struct sigaction action = {};
      action.sa_handler = [](int) { alarms.fetch_add(1); };  // without SA_RESTART
      sigaction(SIGALRM, &action, nullptr);
      const itimerval often = {{0, 1000}, {0, 1000}};
      setitimer(ITIMER_REAL, &often, nullptr);
      Job job(directory_.path(), std::string(kSmall) + ", \"io_engine\": \"" + engine + "\"");
      live(job, directory_.path());
      const itimerval never = {};
      setitimer(ITIMER_REAL, &never, nullptr);
      require(alarms.load() > 20, "alarms");
      std::filesystem::remove_all(at("saved"));
    });
  }
}

// Data loaders fork whenever they like, from threads of their own.
TEST_F(Machine, forks_in_the_middle_of_steps) {
  for (const char* engine : {"auto", "threads"}) {
    SCOPED_TRACE(engine);
    MILLPOND_IN_CHILD([&] {
      Job job(directory_.path(), std::string(kSmall) + ", \"io_engine\": \"" + engine + "\"");
      Training training(job, "s", few());
      Status status;
      require_ok(training.bind(&status), status, "bind");
      const Training::Step other = training.make_step(3);
      const millpond_step_args args = other.args();
      std::atomic<bool> stop{false};
      std::atomic<int> children{0}, wrong{0};
      std::thread forks([&] {
        while (!stop.load() || children.load() < 3) {
          const pid_t child = fork();
          if (child == 0) {
            alarm(20);
            Status told;
            int bad = 0;
            bad += table().step(training.store, &args, &told) != MILLPOND_E_FORKED;
            bad += table().destroy(training.store, &told) != MILLPOND_E_FORKED;
            bad += table().runtime_destroy(job.runtime, &told) != MILLPOND_E_FORKED;
            _exit(bad);
          }
          int ended = 0;
          if (child < 0 || waitpid(child, &ended, 0) != child || ended != 0) wrong.fetch_add(1);
          children.fetch_add(1);
        }
      });
      training.train(1, 40);
      stop = true;
      forks.join();
      require(wrong.load() == 0, std::to_string(wrong.load()) + " of " +
                                     std::to_string(children.load()) + " children went wrong");
      require_equal(training);
    });
  }
}

// Ctrl-Z, a paused container, a debugger: longer than io_timeout_s in the middle of steps.
TEST_F(Machine, stopped_for_longer_than_the_timeout) {
  for (const char* engine : {"auto", "threads"}) {
    SCOPED_TRACE(engine);
    const pid_t test = getpid();
    const pid_t stopper = fork();
    ASSERT_GE(stopper, 0);
    if (stopper == 0) {
      // The child of in_child() leads: it tells its id by a file when it steps.
      const std::string told = at("pid");
      for (int i = 0; i < 3000 && !std::filesystem::exists(told) && getppid() == test; ++i) {
        usleep(10000);
      }
      pid_t victim = 0;
      std::ifstream(told) >> victim;
      for (int i = 0; i < 2 && victim > 1; ++i) {
        kill(victim, SIGSTOP);
        usleep(1'700'000);
        kill(victim, SIGCONT);
        usleep(150'000);
      }
      _exit(0);
    }
    const std::string told = sandbox::in_child([&] {
      Job job(directory_.path(),
              "\"tile_elements\": 4096, \"host_memory_bytes\": 250000, "
              "\"io_timeout_s\": 1, \"io_engine\": \"" +
                  std::string(engine) + "\"");
      Training training(job, "s", few());
      Status status;
      require_ok(training.bind(&status), status, "bind");
      std::ofstream(at("pid.new")) << getpid();
      std::filesystem::rename(at("pid.new"), at("pid"));
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
      for (std::uint64_t number = 1; std::chrono::steady_clock::now() < end; ++number) {
        training.train(number, number);
        require(!testing::Test::HasFailure(), "a step failed: the lines above say how");
      }
      require_equal(training);
    });
    EXPECT_EQ(told, "");
    int ended = 0;
    EXPECT_EQ(waitpid(stopper, &ended, 0), stopper);
    std::filesystem::remove(at("pid"));
  }
}

}  // namespace
}  // namespace millpond::tests
