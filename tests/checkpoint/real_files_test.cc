// Checkpoints on a real file system: modes, names that are something else than files, and the
// independent reader's word.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "checkpoint/digest.h"
#include "checkpoint/saves.h"
#include "millpond/error.hpp"
#include "plugin/io/posix_file_system.h"
#include "tests/checkpoint/python_reader.h"
#include "tests/checkpoint/sample_store.h"

namespace millpond::checkpoint::testing {
namespace {

namespace fs = std::filesystem;

class RealFiles : public ::testing::Test {
 protected:
  RealFiles() {
    std::string pattern = (fs::temp_directory_path() / "millpond-checkpoint-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    base_ = directory_ / "iter_7" / "nvme_opt_state";
    files_ = plugin::open_file_system(base_.string(), true);
  }
  ~RealFiles() override { fs::remove_all(directory_); }

  fs::path store() const { return base_ / kNewId / kUid; }

  fs::path directory_, base_;
  std::unique_ptr<FileSystem> files_;
};

TEST_F(RealFiles, a_save_loads_and_the_next_one_takes_its_place) {
  save(*files_, kOldId, sample_store(1));
  EXPECT_TRUE(same(load(*files_), sample_store(1)));
  fs::create_directories(base_ / "00000000000000000000000000000000" / "rank00000");  // a leftover
  save(*files_, kNewId, sample_store(2));
  EXPECT_TRUE(same(load(*files_), sample_store(2)));
  EXPECT_EQ(std::distance(fs::directory_iterator(base_), fs::directory_iterator()), 1);
}

TEST_F(RealFiles, R11_modes_follow_the_umask) {
  for (const mode_t mask : {mode_t{0077}, mode_t{0027}, mode_t{0002}, mode_t{0}}) {
    const mode_t before = umask(mask);
    save(*files_, mask == 0077 ? kOldId : make_save_id(), sample_store(1));
    umask(before);
    const std::string id = find_save(*files_, "").save_id;
    std::uint64_t seen = 0;
    for (const auto& entry : fs::recursive_directory_iterator(base_ / id)) {
      struct stat info = {};
      ASSERT_EQ(lstat(entry.path().c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 07777, (entry.is_directory() ? 0777U : 0666U) & ~mask)
          << entry.path();
      ++seen;
    }
    EXPECT_EQ(seen, 10U);  // 2 directories, COMMIT, manifest, 3 x (bin, sums)
  }
}

// Each file of the save in turn is replaced by something with the right contents behind it.
TEST_F(RealFiles, links_fifos_and_directories_instead_of_files_are_refused) {
  save(*files_, kNewId, sample_store(2));
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(base_)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  ASSERT_EQ(paths.size(), 8U);
  const fs::path aside = directory_ / "aside";
  for (const fs::path& path : paths) {
    fs::rename(path, aside);
    const auto refused = [&](const char* what) {
      try {
        load(*files_);
        ADD_FAILURE() << path << " as " << what << " loads";
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(path.filename().string()), std::string::npos)
            << what << ": " << error.what();
      }
      fs::remove(path);
    };
    fs::create_symlink(aside, path);
    refused("a symbolic link");
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    refused("a FIFO");
    fs::create_directory(path);
    refused("a directory");
    fs::rename(aside, path);
  }
  EXPECT_TRUE(same(load(*files_), sample_store(2)));
}

TEST_F(RealFiles, a_link_to_a_directory_of_stores_is_refused) {
  save(*files_, kNewId, sample_store(2));
  fs::rename(store().parent_path(), directory_ / "elsewhere");
  fs::create_directory_symlink(directory_ / "elsewhere", store().parent_path());
  EXPECT_THROW(load(*files_), Error);
  // A linked save id is no save at all.
  fs::rename(base_ / kNewId, directory_ / kNewId);
  fs::create_directory_symlink(directory_ / kNewId, base_ / kNewId);
  EXPECT_THROW(load(*files_), Error);
}

TEST_F(RealFiles, another_program_reads_it_and_finds_every_sum_right) {
  save(*files_, kNewId, sample_store(2));
  const PythonAnswer answer = read_with_python({"verify", base_.string()});
  if (!answer.skip.empty()) GTEST_SKIP() << answer.skip;
  EXPECT_EQ(answer.code, 0) << answer.text;
  EXPECT_NE(answer.text.find("\"blocks_checked\": 12"), std::string::npos) << answer.text;

  // And it is no reader that says yes to everything.
  const fs::path file = store() / "bucket00000.bin";
  std::fstream damaged(file, std::ios::in | std::ios::out | std::ios::binary);
  damaged.seekp(12'345);
  damaged.put('\x55');
  damaged.close();
  EXPECT_NE(read_with_python({"verify", base_.string()}).code, 0);
}

TEST(FormatPageInPython, the_worked_example_reads_from_the_page_alone) {
  const PythonAnswer answer = read_with_python({"page", MILLPOND_FORMAT_PAGE});
  if (!answer.skip.empty()) GTEST_SKIP() << answer.skip;
  EXPECT_EQ(answer.code, 0) << answer.text;
}

}  // namespace
}  // namespace millpond::checkpoint::testing
