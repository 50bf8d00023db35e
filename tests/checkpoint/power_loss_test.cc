// B35: power loss at system calls of a save over a good checkpoint, on a real ext4: the filesystem
// is shut down by force (what it has not written is lost), the process killed, the journal replayed
// by the next mount. What loads is the old save or the new one, whole; the new one where the save
// was reported. Scratch files are on the same filesystem, so that links are tried too.
//
// Ten cases, in the campaign every system call with both kinds of shutdown. The shutdown does not
// lose what was handed to the drive and not flushed there: kill_test.cc has a log of writes for
// that.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "tests/checkpoint/in_memory.h"
#include "tests/checkpoint/traced_save.h"
#include "tests/io/sandbox.h"
#include "tests/store/campaign.h"

namespace millpond::tests {
namespace {

using sandbox::require;

constexpr std::uint64_t kPowerCases = 8;
constexpr std::uint64_t kMemory = 128u << 20;
constexpr unsigned long kShutDown = _IOR('X', 125, std::uint32_t);  // EXT4_IOC_SHUTDOWN
// The journal goes to the drive first, and it does not.
constexpr std::uint32_t kModes[] = {1, 2};

void run(const std::string& command) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): a child of one thread
  if (std::system(("( " + command + " ) > /dev/null 2>&1").c_str()) == 0) return;
  sandbox::skip("no ext4 on a loop device here: " + command);
}

// An image's filesystem, mounted while it lives.
class Mounted {
 public:
  Mounted(const std::string& image, std::string at) : at_(std::move(at)) {
    run("mount -o loop " + image + " " + at_);
  }
  ~Mounted() {
    while (umount2(at_.c_str(), 0) != 0 && errno == EBUSY) usleep(5'000);
  }
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;
  void shut_down(std::uint32_t mode) const {
    const int fd = open(at_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int answer = ioctl(fd, kShutDown, &mode);
    const int error = errno;
    close(fd);
    if (answer != 0 && (error == ENOTTY || error == EOPNOTSUPP)) {
      sandbox::skip("this kernel's ext4 cannot be shut down by force");
    }
    require(answer == 0, "shutdown");
  }

 private:
  std::string at_;
};

class PowerLoss {
 public:
  PowerLoss(const std::string& directory, Everything older, Everything newer)
      : directory_(directory), older_(std::move(older)), newer_(std::move(newer)) {
    run("truncate -s 24M " + directory + "/empty && mkfs.ext4 -q -F -b 4096 " + directory +
        "/empty && mkdir " + directory + "/at " + directory + "/scratch");
  }

  // A save of which the system call `call` is not done any more; of all of it when `call` is beyond
  // its end. The number of calls that were seen.
  std::uint64_t lose_power_at(std::uint64_t call, std::uint32_t mode) {
    const std::string image = directory_ + "/image", at = directory_ + "/at";
    run("cp --sparse=always " + directory_ + "/empty " + image);
    TracedSave ran;
    {
      const Mounted disk(image, at);
      std::filesystem::create_directory(at + "/scratch");
      ran = run_traced_save(at + "/scratch", at + "/saves", call, [&] { disk.shut_down(mode); });
      if (!ran.traced) sandbox::skip("ptrace is not allowed here");
      if (!ran.interrupted) disk.shut_down(mode);
    }
    const Mounted disk(image, at);
    Job job(directory_ + "/scratch", kTracedOptions);
    Training survivor(job, "s", usual_parameters(), 9);
    Status status;
    require(survivor.bind(&status) == MILLPOND_OK, status.text());
    require(load(survivor, at + "/saves", &status) == MILLPOND_OK, status.text());
    const Everything found = everything(survivor);
    const auto is = [&](const Everything& one) {
      return found.segments == one.segments && found.counters == one.counters;
    };
    require(is(older_) || is(newer_), "a mixture loads");
    require(is(newer_) || !ran.reported, "the save was reported and is lost");
    (is(newer_) ? new_loads_ : old_loads_) += 1;
    require(save(survivor, at + "/saves", &status) == MILLPOND_OK, status.text());
    require(!only_save(at + "/saves").empty(), "leftovers");
    return ran.calls;
  }

  std::uint64_t old_loads() const { return old_loads_; }
  std::uint64_t new_loads() const { return new_loads_; }

 private:
  std::string directory_;
  Everything older_, newer_;
  std::uint64_t old_loads_ = 0, new_loads_ = 0;
};

TEST(PowerLossOf, B35_ext4_at_system_calls_of_a_save_leaves_the_old_save_or_the_new_one) {
  const InMemory memory(kMemory);
  TemporaryDirectory directory;
  const Everything older = state_after(directory.path(), kOldSteps);
  const Everything newer = state_after(directory.path(), kNewSteps);
  MILLPOND_IN_CHILD(
      [&] {
        PowerLoss power(directory.path(), older, newer);
        std::uint64_t calls = 0;
        for (const std::uint32_t mode : kModes) calls = power.lose_power_at(UINT64_MAX, mode);
        require(calls > 100, "a save has more system calls");
        const std::vector<std::uint64_t> cases = some_of(2 * calls, kPowerCases);
        for (const std::uint64_t number : cases) {
          try {
            power.lose_power_at(number / 2, kModes[number % 2]);
          } catch (const std::runtime_error& error) {
            require(false, "at call " + std::to_string(number / 2) + " of " +
                               std::to_string(calls) + ", shutdown " +
                               std::to_string(kModes[number % 2]) + ": " + error.what());
          }
        }
        require(power.old_loads() > 0 && power.new_loads() >= 2, "both happen");
        std::printf(
            "%zu shutdowns at %llu system calls: the old save %llu times, the new one %llu "
            "times; mixtures and losses wanted 0, got 0\n",
            cases.size() + 2, static_cast<unsigned long long>(calls),
            static_cast<unsigned long long>(power.old_loads()),
            static_cast<unsigned long long>(power.new_loads()));
        std::fflush(stdout);
      },
      3'600);
}

}  // namespace
}  // namespace millpond::tests
