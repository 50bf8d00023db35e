// checkpoint::FileSystem on system calls.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "millpond/error.hpp"
#include "plugin/io/beneath.h"
#include "plugin/io/posix_file_system.h"
#include "tests/io/sandbox.h"

namespace millpond::plugin {
namespace {

namespace fs = std::filesystem;
using checkpoint::Entry;
using sandbox::fill;
using sandbox::read_plainly;
using sandbox::require;

constexpr std::uint64_t kMiB = 1u << 20;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The code of the Error that call throws, MILLPOND_OK when it throws none.
template <typename Call>
int code_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return MILLPOND_OK;
}

class Files : public testing::Test {
 protected:
  std::string full(const std::string& path) const { return directory_.path() + "/base/" + path; }
  void put(const std::string& path, const std::string& text) {
    files_->create(path, 0)->write(0, as_bytes(text));
  }
  std::string get(const std::string& path) {
    const auto file = files_->open(path);
    std::string text(file->size(), '\0');
    file->read(0, std::as_writable_bytes(std::span(text.data(), text.size())));
    return text;
  }

  sandbox::TempDirectory directory_;
  std::unique_ptr<checkpoint::FileSystem> files_ =
      open_file_system(directory_.path() + "/base", true);
};

TEST_F(Files, are_written_read_listed_renamed_and_removed) {
  files_->make_directories("a/b/c");
  files_->make_directories("a/b/c");
  put("a/b/c/one", "first");
  EXPECT_EQ(get("a/b/c/one"), "first");
  files_->rename("a/b/c/one", "a/two");
  EXPECT_EQ(get("a/two"), "first");
  EXPECT_FALSE(files_->exists("a/b/c/one"));
  EXPECT_TRUE(files_->exists("a/two"));
  EXPECT_FALSE(files_->exists("a/two/three"));
  files_->sync_directory("a");
  files_->sync_directory("");
  fs::create_symlink("two", full("a/link"));
  const std::vector<Entry> entries = files_->list("a");
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "b");
  EXPECT_EQ(entries[0].kind, Entry::Kind::kDirectory);
  EXPECT_EQ(entries[1].name, "link");
  EXPECT_EQ(entries[1].kind, Entry::Kind::kOther);
  EXPECT_EQ(entries[2].name, "two");
  EXPECT_EQ(entries[2].kind, Entry::Kind::kFile);
  EXPECT_TRUE(files_->list("absent").empty());
  files_->remove_tree("a");
  files_->remove_tree("a");
  files_->remove_tree("a/b");
  EXPECT_TRUE(files_->list("").empty());
}

TEST_F(Files, absent_ones_are_missing_and_short_ones_corrupt) {
  EXPECT_EQ(code_of([&] { files_->open("absent"); }), MILLPOND_E_MISSING);
  EXPECT_EQ(code_of([&] { files_->open("absent/file"); }), MILLPOND_E_MISSING);
  EXPECT_EQ(code_of([&] { open_file_system(directory_.path() + "/nowhere", false); }),
            MILLPOND_E_MISSING);
  put("file", "12345");
  try {
    std::string text(10, '\0');
    files_->open("file")->read(2, std::as_writable_bytes(std::span(text.data(), text.size())));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_CORRUPT);
    EXPECT_EQ(error.offset(), 2u);
    EXPECT_EQ(error.wanted(), 10u);
    EXPECT_EQ(error.got(), 3u);
    EXPECT_NE(std::string(error.what()).find("base/file"), std::string::npos);
  }
}

// The kernel's way and the walk give the same answers; with openat2 refused, only the walk is left.
TEST_F(Files, nothing_outside_of_the_base_is_reached) {
  std::ofstream(directory_.path() + "/secret") << "x";
  fs::create_directory(directory_.path() + "/outside");
  files_->make_directories("d");
  fs::create_symlink(directory_.path() + "/secret", full("absolute"));
  fs::create_symlink("../secret", full("relative"));
  fs::create_symlink(directory_.path() + "/outside", full("way"));
  fs::create_symlink("d", full("inside"));
  put("d/file", "here");
  const auto check = [&](checkpoint::FileSystem& files) {
    for (const char* path :
         {"..", "../secret", "d/../../secret", "/etc/passwd", "./d", "d//file", "d/", "d/."}) {
      require(code_of([&] { files.open(path); }) == MILLPOND_E_ARGUMENT, path);
      require(code_of([&] { files.create(path, 0); }) == MILLPOND_E_ARGUMENT, path);
      require(code_of([&] { files.remove_tree(path); }) == MILLPOND_E_ARGUMENT, path);
    }
    require(code_of([&] { files.remove_tree(""); }) == MILLPOND_E_ARGUMENT, "the base stays");
    for (const char* path : {"absolute", "relative", "way/file", "inside/file"}) {
      require(code_of([&] { files.open(path); }) == MILLPOND_E_CORRUPT, path);
    }
    for (const char* path : {"way/new", "inside/new"}) {
      require(code_of([&] { files.create(path, 0); }) == MILLPOND_E_CORRUPT, path);
      require(code_of([&] { files.make_directories(path); }) == MILLPOND_E_CORRUPT, path);
      require(code_of([&] { files.rename("d/file", path); }) == MILLPOND_E_CORRUPT, path);
    }
    require(code_of([&] { files.list("way"); }) == MILLPOND_E_CORRUPT, "list");
    require(code_of([&] { files.make_directories("way"); }) == MILLPOND_E_CORRUPT, "make");
    const auto file = files.open("d/file");
    require(file->size() == 4, "what is inside is reached");
  };
  check(*files_);
  MILLPOND_IN_CHILD([&] {
    sandbox::refuse({{SYS_openat2, ENOSYS}});
    check(*open_file_system(directory_.path() + "/base", false));
  });
  MILLPOND_IN_CHILD([&] {
    sandbox::refuse({{SYS_openat2, EPERM}});
    check(*open_file_system(directory_.path() + "/base", false));
  });
  EXPECT_TRUE(fs::is_empty(directory_.path() + "/outside"));
}

TEST_F(Files, only_regular_files_are_opened_and_a_FIFO_is_not_waited_for) {
  ASSERT_EQ(::mkfifo(full("fifo").c_str(), 0600), 0);
  files_->make_directories("directory");
  EXPECT_EQ(sandbox::in_child(
                [&] {
                  require(code_of([&] { files_->open("fifo"); }) == MILLPOND_E_CORRUPT, "fifo");
                  require(code_of([&] { files_->open("directory"); }) == MILLPOND_E_CORRUPT, "dir");
                },
                5),
            "");
}

TEST_F(Files, R11_modes_follow_the_umask) {
  for (const mode_t mask : {022u, 027u, 077u}) {
    MILLPOND_IN_CHILD([&] {
      ::umask(mask);
      const std::string name = "m" + std::to_string(mask);
      files_->make_directories(name);
      files_->create(name + "/file", 8192);
      struct stat info = {};
      require(::stat(full(name).c_str(), &info) == 0 && (info.st_mode & 0777) == (0777 & ~mask),
              "directory");
      require(::stat(full(name + "/file").c_str(), &info) == 0 &&
                  (info.st_mode & 0777) == (0666 & ~mask),
              "file");
    });
  }
}

TEST_F(Files, a_new_file_never_writes_into_an_older_one_of_its_name) {
  put("bucket", "the older save");
  ASSERT_EQ(::link(full("bucket").c_str(), full("kept").c_str()), 0);
  put("bucket", "new");
  EXPECT_EQ(get("kept"), "the older save");
  EXPECT_EQ(get("bucket"), "new");
}

TEST_F(Files, space_is_reserved_and_reads_as_zeros) {
  const auto file = files_->create("bucket", 3 * kMiB);
  EXPECT_EQ(file->size(), 3 * kMiB);
  struct stat info = {};
  ASSERT_EQ(::stat(full("bucket").c_str(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, static_cast<long>(3 * kMiB));
  const auto bytes = read_plainly(full("bucket"), 0, 3 * kMiB);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{0}), static_cast<long>(3 * kMiB));
}

TEST_F(Files, removing_a_tree_does_not_follow_links) {
  fs::create_directory(directory_.path() + "/outside");
  std::ofstream(directory_.path() + "/outside/file") << "x";
  files_->make_directories("a/b");
  fs::create_symlink(directory_.path() + "/outside", full("a/b/link"));
  fs::create_symlink(directory_.path() + "/outside", full("alone"));
  files_->remove_tree("a");
  files_->remove_tree("alone");
  EXPECT_TRUE(fs::exists(directory_.path() + "/outside/file"));
  EXPECT_FALSE(fs::exists(full("a")));
  EXPECT_FALSE(fs::is_symlink(full("alone")));
}

TEST_F(Files, removers_of_the_same_tree_do_not_disturb_each_other) {
  for (int round = 0; round < 50; ++round) {
    for (int n = 0; n < 4; ++n)
      fs::create_directories(full("save/rank" + std::to_string(n) + "/x"));
    std::atomic<int> ready{0}, failed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (++ready; ready < 4;) std::this_thread::yield();
        failed += code_of([&] { files_->remove_tree("save"); }) == MILLPOND_OK ? 0 : 1;
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(failed, 0) << "round " << round;
    ASSERT_FALSE(fs::exists(full("save")));
  }
}

TEST_F(Files, makers_of_the_same_directories_do_not_disturb_each_other) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 20; ++n) {
        const std::string path = "x" + std::to_string(n) + "/y/z";
        files_->make_directories(path);
        files_->create(path + "/" + std::to_string(i), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int n = 0; n < 20; ++n) EXPECT_EQ(files_->list("x" + std::to_string(n) + "/y/z").size(), 4u);
}

TEST_F(Files, a_save_and_a_load_leave_little_in_the_page_cache) {
  constexpr std::uint64_t kBytes = 96 * kMiB;
  constexpr std::uint64_t kPiece = 1000 * 1000;  // no multiple of a page
  std::vector<std::byte> piece(kPiece);
  const auto resident = [&] {
    const int fd = ::open(full("big").c_str(), O_RDONLY);
    void* map = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
    std::vector<unsigned char> pages(kBytes / 4096);
    ::mincore(map, kBytes, pages.data());
    ::munmap(map, kBytes);
    ::close(fd);
    return static_cast<std::uint64_t>(
        std::count_if(pages.begin(), pages.end(), [](auto p) { return (p & 1) != 0; }) * 4096);
  };
  const auto file = files_->create("big", kBytes);
  std::uint64_t most = 0;
  for (std::uint64_t at = 0; at + kPiece <= kBytes; at += kPiece) {
    fill(piece.data(), 64, at);
    file->write(at, piece);
    if (at / kPiece % 16 == 0) most = std::max(most, resident());
  }
  EXPECT_LT(most, 28 * kMiB);
  file->sync_data();
  EXPECT_LT(resident(), kMiB);
  most = 0;
  const auto again = files_->open("big");
  std::vector<std::byte> back(kPiece);
  for (std::uint64_t at = 0; at + kPiece <= kBytes; at += kPiece) {
    again->read(at, back);
    fill(piece.data(), 64, at);
    ASSERT_EQ(back, piece) << at;
    if (at / kPiece % 16 == 0) most = std::max(most, resident());
  }
  EXPECT_LT(most, 48 * kMiB);  // the kernel reads ahead, on some drives by 8 MiB and more
}

// Elsewhere one EAGAIN ended a run. It is tried again for a second; then it is an error like
// others.
TEST_F(Files, B15_what_is_to_be_tried_again_is_tried_again_before_it_is_an_error) {
  for (const long call : {SYS_pwrite64, SYS_pread64}) {
    MILLPOND_IN_CHILD([&] {
      const auto file = files_->create("file" + std::to_string(call), 0);
      std::byte bytes[100] = {};
      file->write(0, bytes);
      sandbox::refuse({{call, EAGAIN}});
      const auto begin = std::chrono::steady_clock::now();
      int native = 0;
      try {
        call == SYS_pwrite64 ? file->write(100, bytes) : file->read(0, bytes);
      } catch (const Error& told) {
        native = told.native();
        require(told.got() == 0 && told.wanted() == 100, told.what());
      }
      require(native == EAGAIN, "errno " + std::to_string(native));
      require(std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(900),
              "it was tried again");
    });
  }
}

TEST_F(Files, B14_a_full_disk_is_an_error_early_or_at_the_write_and_the_rest_stays_of_use) {
  MILLPOND_IN_CHILD([&] {
    const std::string disk = directory_.path() + "/disk";
    sandbox::mount_here("tmpfs", disk, "size=4m");
    const auto files = open_file_system(disk + "/base", true);
    files->create("old", 0)->write(0, as_bytes("the older checkpoint"));
    try {
      files->create("early", 8 * kMiB);
      require(false, "no space");
    } catch (const Error& error) {
      require(error.code() == MILLPOND_E_NO_SPACE && error.wanted() == 8 * kMiB, error.what());
      require(error.got() > 0 && error.got() <= 4 * kMiB, error.what());
    }
    require(!files->exists("early"), "nothing is left of it");
    auto late = files->create("late", 0);
    const std::vector<std::byte> bytes(8 * kMiB, std::byte{1});
    try {
      late->write(0, bytes);
      require(false, "no space");
    } catch (const Error& error) {
      require(error.code() == MILLPOND_E_NO_SPACE && error.wanted() == 8 * kMiB, error.what());
      require(error.got() < 4 * kMiB, error.what());
    }
    require(code_of([&] { late->sync_data(); }) == MILLPOND_E_NO_SPACE, "and is not forgotten");
    files->remove_tree("late");
    late.reset();
    files->create("new", kMiB);
    require(files->open("old")->size() == 20, "the older one is whole");
  });
}

}  // namespace
}  // namespace millpond::plugin
