// Files that a copied save leaves serve the next one: save_to then reserves nothing, whatever the
// size of the state, and gives no space back either.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "tests/checkpoint/saved_training.h"
#include "tests/store/small_filesystem.h"

namespace millpond::tests {
namespace {

// The nameless files below `directory` that this process has open, by inode.
std::set<ino_t> nameless_files(const std::string& directory) {
  std::set<ino_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat info {};
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.rfind(directory, 0) != 0 || stat(entry.path().c_str(), &info) != 0) continue;
    if (S_ISREG(info.st_mode) && info.st_nlink == 0) found.insert(info.st_ino);
  }
  return found;
}

// The scratch files are on a small filesystem of their own: saves are copied.
class Spare : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!disk_.mounted()) {
      GTEST_SKIP() << "mounting a tmpfs is not allowed here: " << strerror(errno);
    }
  }
  void step(Training& training, bool of_all_parameters) {
    do {
      ++number_;
    } while (of_all_parameters != (number_ % 3 == 0));  // Training::make_step
    training.train(number_);
  }
  // A step is taken while the save is written.
  void save_copied(Job& job, Training& training, bool of_all_parameters) {
    ASSERT_EQ(save(training, saved_.path(), &status_, MILLPOND_IO_COMMIT | MILLPOND_IO_BACKGROUND),
              MILLPOND_OK)
        << status_.text();
    step(training, of_all_parameters);
    ASSERT_EQ(checkpoints().wait(training.store, &status_), MILLPOND_OK) << status_.text();
    ASSERT_TRUE(job.log_has(" 0 linked or cloned"));
    EXPECT_FALSE(only_save(saved_.path()).empty());
  }
  void expect_saved(const Everything& saved, const std::string& options) {
    const TemporaryDirectory scratch;
    Job job(scratch.path(), options);
    Training resumed(job, "s", usual_parameters(), 77);
    ASSERT_EQ(resumed.bind(&status_), MILLPOND_OK) << status_.text();
    ASSERT_EQ(load(resumed, saved_.path(), &status_), MILLPOND_OK) << status_.text();
    const Everything loaded = everything(resumed);
    EXPECT_EQ(loaded.counters, saved.counters);
    EXPECT_EQ(loaded.segments, saved.segments);
  }

  SmallFilesystem disk_;
  const TemporaryDirectory saved_;
  Status status_;
  std::uint64_t number_ = 0;
};

class SpareOf : public Spare, public ::testing::WithParamInterface<const char*> {};

TEST_P(SpareOf, two_sets_of_files_serve_all_copied_saves_in_turn) {
  const std::string options =
      std::string("\"tile_elements\": 4096, \"bucket_elements\": 9000, ") + GetParam();
  Job job(disk_.path(), options);
  Training training(job, "s", usual_parameters());
  ASSERT_EQ(training.bind(&status_), MILLPOND_OK) << status_.text();
  step(training, true);
  const std::set<ino_t> first = nameless_files(disk_.path());
  ASSERT_FALSE(first.empty());
  save_copied(job, training, true);
  const std::set<ino_t> both = nameless_files(disk_.path());
  EXPECT_EQ(both.size(), 2 * first.size());
  for (int saves = 2; saves <= 5; ++saves) {
    if (saves % 2 == 0) step(training, true);
    const Everything saved = everything(training);
    save_copied(job, training, true);
    EXPECT_EQ(nameless_files(disk_.path()), both) << "other files after save " << saves;
    if (saves > 3) expect_saved(saved, options);
  }
  // What a step does not rewrite stays in the older files: they do not serve yet.
  for (int saves = 6; saves <= 7; ++saves) {
    const Everything saved = everything(training);
    save_copied(job, training, false);
    expect_saved(saved, options);
    EXPECT_LE(nameless_files(disk_.path()).size(), 3 * first.size());
  }
}

// A save's spare files are no loss of space: what needs it takes theirs.
TEST_F(Spare, are_given_up_where_space_is_short) {
  Job job(disk_.path(), kSmallTiles);
  Training training(job, "s", usual_parameters());
  ASSERT_EQ(training.bind(&status_), MILLPOND_OK) << status_.text();
  step(training, true);
  const std::vector<PlainParameter> saved = training.plain;
  save_copied(job, training, true);
  step(training, true);
  const std::size_t files = nameless_files(disk_.path()).size();
  disk_.fill();
  ASSERT_EQ(load(training, saved_.path(), &status_), MILLPOND_OK) << status_.text();
  take_over(training, saved);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
  EXPECT_LE(nameless_files(disk_.path()).size(), files);
  step(training, false);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

INSTANTIATE_TEST_SUITE_P(Tiers, SpareOf,
                         ::testing::Values("\"host_memory_bytes\": \"auto\"",
                                           "\"host_memory_bytes\": 120000, \"moments\": \"fp16\""));

}  // namespace
}  // namespace millpond::tests
