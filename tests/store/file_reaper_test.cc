// The thread that gives space back: in pieces, never of a file that somebody else may read, and not
// while somebody reserves space.
#include "plugin/store/file_reaper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "tests/store/training.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kBytes = 1u << 30;  // sparse
constexpr std::chrono::seconds kPatience{60};

class Reaper : public ::testing::Test {
 protected:
  // Two descriptors of a new file; the first is handed over, the second looks at it.
  std::pair<Fd, Fd> file(int access, bool named) {
    const std::string path = directory_.path() + "/file";
    const Fd made(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    EXPECT_EQ(ftruncate(made.get(), kBytes), 0);
    std::pair<Fd, Fd> two(Fd(open(path.c_str(), access | O_CLOEXEC)),
                          Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)));
    if (!named) unlink(path.c_str());
    return two;
  }
  static std::uint64_t size(const Fd& file) {
    struct stat info {};
    EXPECT_EQ(fstat(file.get(), &info), 0);
    return static_cast<std::uint64_t>(info.st_size);
  }

  const tests::TemporaryDirectory directory_;
  FileReaper reaper_{kPatience};
};

TEST_F(Reaper, cuts_a_file_that_is_nobody_elses_also_one_open_for_reading) {
  for (const int access : {O_RDWR, O_RDONLY}) {
    auto [handed, seen] = file(access, false);
    reaper_.close(std::move(handed), Others::kNobody);
    ASSERT_TRUE(reaper_.wait());
    EXPECT_LE(size(seen), kBytes / 8);
  }
}

TEST_F(Reaper, leaves_what_others_may_read_as_it_is) {
  auto [perhaps, perhaps_seen] = file(O_RDWR, false);
  reaper_.close(std::move(perhaps), Others::kPerhaps);
  ASSERT_TRUE(reaper_.wait());
  EXPECT_EQ(size(perhaps_seen), kBytes);
  auto [named, named_seen] = file(O_RDWR, true);
  reaper_.close(std::move(named), Others::kNobody);
  ASSERT_TRUE(reaper_.wait());
  EXPECT_EQ(size(named_seen), kBytes);
}

TEST_F(Reaper, cuts_nothing_during_a_pause) {
  auto [handed, seen] = file(O_RDWR, false);
  {
    const FileReaper::Pause pause(reaper_);
    reaper_.close(std::move(handed), Others::kNobody);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(size(seen), kBytes);
  }
  ASSERT_TRUE(reaper_.wait());
  EXPECT_LE(size(seen), kBytes / 8);
}

}  // namespace
}  // namespace millpond::plugin
