// What a killed save left goes when the next one is written, behind save_to: removing a large file
// takes seconds.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "tests/checkpoint/saved_training.h"
#include "tests/store/small_filesystem.h"

namespace millpond::tests {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLeftover = "0123456789abcdef0123456789abcdef";

fs::path leave(const std::string& path, const std::string& bytes) {
  const fs::path left = fs::path(path) / kLeftover;
  fs::create_directories(left / "s");
  write_file(left / "s" / "bucket00000.bin", bytes);
  return left;
}

TEST(Leftover, B35_goes_behind_save_to_and_before_the_save_counts) {
  const TemporaryDirectory scratch, saved;
  Job job(scratch.path(), kSmallTiles);
  Training training(job, "s", usual_parameters());
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(1);
  const fs::path left = leave(saved.path(), "half a save");
  // save_to tells its progress once, when nothing but the freezing is left for it to do.
  std::size_t told = 0, there = 0;
  job.in_progress = [&] { there += told++ == 0 && fs::exists(left) ? 1 : 0; };
  ASSERT_EQ(save(training, saved.path(), &status, MILLPOND_IO_COMMIT | MILLPOND_IO_BACKGROUND),
            MILLPOND_OK)
      << status.text();
  EXPECT_GE(told, 1U);
  EXPECT_EQ(there, 1U) << "save_to removed it";
  ASSERT_EQ(checkpoints().wait(training.store, &status), MILLPOND_OK) << status.text();
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(only_save(saved.path()).empty());
  ASSERT_EQ(load(training, saved.path(), &status), MILLPOND_OK) << status.text();
  EXPECT_EQ(training.state_differs(), "");
}

TEST(Leftover, B35_that_has_the_space_a_save_needs_goes_first) {
  const SmallFilesystem disk;
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not allowed here: " << strerror(errno);
  Job job(disk.path(), kSmallTiles);
  Training training(job, "s", usual_parameters());
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(1);
  const std::string path = disk.path() + "/saves";
  const fs::path left = leave(path, "");
  fs::rename(disk.fill(), left / "s" / "bucket00000.bin");
  ASSERT_EQ(save(training, path, &status), MILLPOND_OK) << status.text();
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(only_save(path).empty());
  training.train(2, 3);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

}  // namespace
}  // namespace millpond::tests
