// The ceilings count what they say they move, findings are what the system says, and nothing is
// left behind.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "millpond/error.hpp"
#include "plugin/probe/directory.h"
#include "plugin/probe/drive.h"
#include "plugin/probe/machine.h"
#include "plugin/probe/update.h"

namespace millpond::plugin {
namespace {

class Directory {
 public:
  Directory() {
    std::string name = std::filesystem::temp_directory_path() / "millpond-probe-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Drive, moves_the_share_that_was_asked_for) {
  const Directory directory;
  {
    DriveRequest request;
    request.directory = directory.path();
    request.transfer_bytes = 64 << 10;
    request.file_bytes = 4 << 20;
    std::uint64_t beats = 0;
    DriveProbe probe(request, [&](std::uint64_t done, std::uint64_t total) {
      ++beats;
      EXPECT_LE(done, total);
    });
    EXPECT_GT(beats, 0u);
    for (const double share : {0.0, 0.25, 0.5, 1.0}) {
      const DriveRate rate = probe.measure(share, 8 << 20);
      EXPECT_EQ(rate.bytes_read + rate.bytes_written, 8u << 20);
      EXPECT_NEAR(static_cast<double>(rate.bytes_read), share * (8 << 20), 64 << 10);
      EXPECT_GT(rate.bytes_per_s, 0.0);
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Drive, ends_when_its_time_is_over) {
  const Directory directory;
  DriveRequest request;
  request.directory = directory.path();
  request.file_bytes = 1ull << 30;
  request.most_seconds = 0.02;
  DriveProbe probe(request);
  const DriveRate rate = probe.measure(0.5, 1ull << 40);
  EXPECT_LT(rate.bytes_read + rate.bytes_written, 1ull << 40);
  EXPECT_GT(rate.bytes_per_s, 0.0);
}

TEST(Drive, a_directory_that_is_not_there_is_an_error) {
  DriveRequest request;
  request.directory = "/nonexistent/scratch";
  EXPECT_THROW(DriveProbe probe(request), Error);
}

TEST(Drive, an_interrupted_measurement_leaves_nothing_behind) {
  const Directory directory;
  DriveRequest request;
  request.directory = directory.path();
  request.file_bytes = 64 << 20;
  struct Enough {};
  EXPECT_THROW(DriveProbe probe(request, [](std::uint64_t, std::uint64_t) { throw Enough(); }),
               Enough);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Drive, a_slow_one_is_a_warning_with_a_remedy) {
  EXPECT_EQ(judge_drive(2.0e9).verdict, CheckVerdict::kOk);
  const Check slow = judge_drive(0.1e9);
  EXPECT_EQ(slow.verdict, CheckVerdict::kWarning);
  EXPECT_NE(slow.remedy, "");
  EXPECT_NE(slow.found.find("0.10 GB/s"), std::string::npos) << slow.found;
}

const Check& check_of(const Checks& checks, const std::string& name) {
  for (const Check& check : checks) {
    if (check.name == name) return check;
  }
  throw std::runtime_error("no check is called " + name);
}

TEST(Machine, finds_what_the_system_says) {
  MachineRequest request;
  request.available_bytes = 8ull << 30;
  request.available_source = "MemAvailable";
  const Machine machine = look_at_machine(request);
  EXPECT_GE(machine.processors, 1u);
  EXPECT_NE(machine.engine, "");
  EXPECT_NE(machine.engine_reason, "");
  EXPECT_EQ(check_of(machine.checks, "memory").verdict, CheckVerdict::kOk);
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(machine.open_files, files.rlim_cur);
  for (const char* name : {"engine", "memlock", "open_files", "processor", "cuda"}) {
    EXPECT_NE(check_of(machine.checks, name).found, "") << name;
  }
}

TEST(Machine, too_little_memory_fails_and_little_warns) {
  MachineRequest request;
  request.available_source = "a control group";
  request.available_bytes = 1 << 20;
  const Check none = check_of(look_at_machine(request).checks, "memory");
  EXPECT_EQ(none.verdict, CheckVerdict::kFailed);
  EXPECT_NE(none.remedy, "");
  request.available_bytes = 512 << 20;
  EXPECT_EQ(check_of(look_at_machine(request).checks, "memory").verdict, CheckVerdict::kWarning);
}

TEST(Machine, threads_by_choice_are_no_warning) {
  MachineRequest request;
  request.engine = "threads";
  const Machine machine = look_at_machine(request);
  EXPECT_EQ(machine.engine, "threads");
  EXPECT_EQ(check_of(machine.checks, "engine").verdict, CheckVerdict::kOk);
  EXPECT_FALSE(machine.registered);
}

TEST(DirectoryFacts, of_a_real_directory) {
  const Directory directory;
  const DirectoryFacts facts = look_at_directory({.path = directory.path()});
  EXPECT_TRUE(facts.usable) << facts.reason;
  EXPECT_GT(facts.free_bytes, 0u);
  EXPECT_GE(facts.total_bytes, facts.free_bytes);
  EXPECT_NE(facts.filesystem, "");
  for (const char* name :
       {"directory", "filesystem", "o_direct", "o_tmpfile", "reflink", "free_space"}) {
    const Check& check = check_of(facts.checks, name);
    EXPECT_NE(check.verdict, CheckVerdict::kFailed) << name << ": " << check.found;
    if (check.verdict == CheckVerdict::kWarning) {
      EXPECT_NE(check.remedy, "") << name;
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(DirectoryFacts, what_does_not_fit_fails_with_the_bytes) {
  const Directory directory;
  const DirectoryFacts facts =
      look_at_directory({.path = directory.path(), .needed_bytes = 1ull << 60});
  const Check& space = check_of(facts.checks, "free_space");
  EXPECT_EQ(space.verdict, CheckVerdict::kFailed);
  EXPECT_NE(space.found.find("1073741824.00 GiB needed"), std::string::npos) << space.found;
}

TEST(DirectoryFacts, an_absent_one_is_a_finding) {
  const DirectoryFacts facts = look_at_directory({.path = "/nonexistent/scratch"});
  EXPECT_FALSE(facts.usable);
  const Check& check = check_of(facts.checks, "directory");
  EXPECT_EQ(check.verdict, CheckVerdict::kFailed);
  EXPECT_NE(check.found.find("/nonexistent/scratch"), std::string::npos);
  EXPECT_NE(check.remedy, "");
}

TEST(DirectoryFacts, memory_is_not_a_drive) {
  if (std::filesystem::is_directory("/dev/shm") && access("/dev/shm", W_OK) == 0) {
    const DirectoryFacts facts = look_at_directory({.path = "/dev/shm"});
    if (facts.filesystem != "tmpfs") GTEST_SKIP() << "/dev/shm is " << facts.filesystem;
    EXPECT_EQ(check_of(facts.checks, "filesystem").verdict, CheckVerdict::kWarning);
  } else {
    GTEST_SKIP() << "there is no /dev/shm to write to";
  }
}

TEST(Update, counts_the_bytes_of_an_element) {
  UpdateRequest request;
  request.elements = 1 << 18;
  request.threads = 2;
  request.rounds = 1;
  // main, exp_avg, exp_avg_sq read and written, gradient read, model written.
  EXPECT_EQ(measure_update(request).bytes, (24ULL + 4 + 2) << 18);
  request.grad = kernels::Element::kBf16;
  EXPECT_EQ(measure_update(request).bytes, (24ULL + 2 + 2) << 18);
  request.moments = kernels::Storage::kBf16;
  EXPECT_EQ(measure_update(request).bytes, (16ULL + 2 + 2) << 18);
  request.model = kernels::Element::kFp32;  // its own main: moments, gradient, model both ways
  const UpdateRate own = measure_update(request);
  EXPECT_EQ(own.bytes, (8ULL + 2 + 8) << 18);
  EXPECT_GT(own.update_bytes_per_s, 0.0);
  EXPECT_GT(own.ceiling_bytes_per_s, 0.0);
}

}  // namespace
}  // namespace millpond::plugin
