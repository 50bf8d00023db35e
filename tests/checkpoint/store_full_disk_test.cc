// B15: saves that run out of space, at 100 fill levels from nothing free to almost enough (a few of
// them outside the campaign): where the checkpoint is on a filesystem of its own and where it is on
// that of the scratch files, too. The live store and the older save are what they were.
#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "tests/checkpoint/saved_training.h"
#include "tests/store/campaign.h"
#include "tests/store/small_filesystem.h"

namespace millpond::tests {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLevels = 100, kFewLevels = 8;

std::uint64_t free_bytes(const SmallFilesystem& disk) {
  struct statvfs info = {};
  EXPECT_EQ(statvfs(disk.path().c_str(), &info), 0);
  return info.f_bavail * info.f_frsize;
}

std::string filler(const SmallFilesystem& disk) { return disk.path() + "/filler"; }

void leave_free(const SmallFilesystem& disk, std::uint64_t bytes) {
  const std::uint64_t free = free_bytes(disk);
  ASSERT_GE(free, bytes);
  std::ofstream(filler(disk), std::ios::binary) << std::string(free - bytes, 'x');
}

std::uint64_t in_pages(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

class FullDisk : public ::testing::TestWithParam<bool> {};

TEST_P(FullDisk, B15_in_a_save_leaves_the_older_one_and_the_live_store) {
  const bool scratch_too = GetParam();
  const TemporaryDirectory roomy;
  const SmallFilesystem disk;
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not allowed here: " << strerror(errno);
  const std::string scratch = scratch_too ? disk.path() + "/scratch" : roomy.path();
  fs::create_directories(scratch);
  std::vector<Parameter> parameters = usual_parameters();
  parameters.push_back({"more", 25'000, 0, 2});
  Job job(scratch, kSmallTiles);
  Training training(job, "s", parameters);
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(1, 2);
  const std::string path = disk.path() + "/state";
  ASSERT_EQ(save(training, path, &status), MILLPOND_OK) << status.text();
  const fs::path older = only_save(path);
  const std::vector<PlainParameter> saved = training.plain;
  training.train(3);
  const Everything live = everything(training);

  // What one more save takes: a copy of the state or reserved files for its successor, and the
  // rest.
  std::uint64_t needed = 0;
  for (const auto& entry : fs::recursive_directory_iterator(older)) {
    if (entry.is_regular_file()) needed += in_pages(entry.file_size());
  }
  std::set<std::uint64_t> levels;
  for (const std::uint64_t level : some_of(kLevels, kFewLevels)) {
    const std::uint64_t left = needed * level / kLevels / 4096 * 4096;
    SCOPED_TRACE(std::to_string(left) + " of " + std::to_string(needed) + " bytes are free");
    levels.insert(left);
    leave_free(disk, left);
    EXPECT_EQ(save(training, path, &status), MILLPOND_E_NO_SPACE) << status.text();
    fs::remove(filler(disk));
    EXPECT_EQ(only_save(path), older);
    EXPECT_EQ(everything(training), live);
    if (HasFailure()) return;
  }
  EXPECT_EQ(levels.size(), some_of(kLevels, kFewLevels).size()) << "levels that are the same";
  std::printf(
      "%zu fill levels of a save of %llu bytes: wanted the older save and the live state "
      "unchanged each time, got it\n",
      levels.size(), static_cast<unsigned long long>(needed));
  ASSERT_EQ(load(training, path, &status), MILLPOND_OK) << status.text();
  take_over(training, saved);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
  ASSERT_EQ(save(training, path, &status), MILLPOND_OK) << status.text();
  training.train(4, 5);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

INSTANTIATE_TEST_SUITE_P(Disks, FullDisk, ::testing::Bool(), [](const auto& info) {
  return info.param ? "of_scratch_too" : "of_its_own";
});

}  // namespace
}  // namespace millpond::tests
