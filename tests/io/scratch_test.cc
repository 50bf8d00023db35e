// Scratch directories and files: private, reserved, gone with their owner.
#include "plugin/io/scratch.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "millpond/error.hpp"
#include "tests/io/rig.h"

namespace millpond::plugin {
namespace {

namespace fs = std::filesystem;
using sandbox::require;

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Scratch : public testing::Test {
 protected:
  const std::string& root() const { return directory_.path(); }
  // A root whose process is killed while it holds it; returns the private directory's path.
  std::string killed_owner(bool leave_file) {
    int ends[2];
    if (::pipe(ends) != 0) return "";
    const pid_t child = ::fork();
    if (child == 0) {
      const ScratchRoot scratch(root(), "auto");
      if (leave_file) std::ofstream(scratch.path() + "/stale") << "bytes";
      if (::write(ends[1], scratch.path().data(), scratch.path().size()) < 0) ::_exit(1);
      ::kill(::getpid(), SIGKILL);
    }
    ::close(ends[1]);
    char buffer[512];
    const ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    return std::string(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
  }

  sandbox::TempDirectory directory_;
};

TEST_F(Scratch, is_private_and_leaves_nothing) {
  {
    const ScratchRoot scratch(root(), "auto");
    struct stat info = {};
    ASSERT_EQ(::stat(scratch.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);
    ScratchRoot other(root(), "auto");
    EXPECT_EQ(other.reclaimed(), 0u);
    EXPECT_NE(other.path(), scratch.path());
    EXPECT_EQ(names_in(root()).size(), 2u);
  }
  EXPECT_TRUE(names_in(root()).empty());
}

TEST_F(Scratch, files_are_reserved_private_and_of_exactly_the_size) {
  ScratchRoot scratch(root(), "auto");
  for (const std::uint64_t bytes : {std::uint64_t{4096}, std::uint64_t{3} << 20}) {
    const Fd fd = scratch.create(bytes, "bucket");
    struct stat info = {};
    ASSERT_EQ(::fstat(fd.get(), &info), 0);
    EXPECT_EQ(static_cast<std::uint64_t>(info.st_size), bytes);
    EXPECT_GE(static_cast<std::uint64_t>(info.st_blocks) * 512, bytes);
    EXPECT_EQ(info.st_mode & 07777, 0600u);
    EXPECT_EQ((::fcntl(fd.get(), F_GETFL) & O_DIRECT) != 0, scratch.ability().direct);
    EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(names_in(scratch.path()), std::vector<std::string>{"owner"});
  }
}

TEST_F(Scratch, a_killed_owner_leaves_a_directory_that_the_next_one_removes) {
  const std::string dead = killed_owner(true);
  ASSERT_TRUE(fs::exists(dead + "/stale"));
  const ScratchRoot scratch(root(), "auto");
  EXPECT_EQ(scratch.reclaimed(), 1u);
  EXPECT_FALSE(fs::exists(dead));
}

// The lock decides, not the process id in the name.
TEST_F(Scratch, ids_of_processes_mean_nothing) {
  const std::string ours = root() + "/millpond-" + std::to_string(::getpid()) + "-00000000000000aa";
  const std::string gone = root() + "/millpond-999999999-00000000000000bb";
  for (const std::string& path : {ours, gone}) {
    ASSERT_TRUE(fs::create_directory(path));
    std::ofstream(path + "/owner");
    std::ofstream(path + "/data") << "x";
  }
  const Fd lock(::open((gone + "/owner").c_str(), O_RDWR));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  const ScratchRoot scratch(root(), "auto");
  EXPECT_EQ(scratch.reclaimed(), 1u);
  EXPECT_FALSE(fs::exists(ours));
  EXPECT_TRUE(fs::exists(gone + "/data"));
}

TEST_F(Scratch, what_is_not_ours_is_left_alone) {
  const std::string outside = root() + "/outside";
  fs::create_directory(outside);
  std::ofstream(outside + "/owner");
  const std::vector<std::string> others = {"millpond-checkpoints", "millpond-1-xyz",
                                           "millpond--00000000000000aa",
                                           "millpond-1-00000000000000AA"};
  for (const std::string& name : others) {
    fs::create_directory(root() + "/" + name);
    std::ofstream(root() + "/" + name + "/owner");
  }
  fs::create_symlink(outside, root() + "/millpond-1-00000000000000cc");
  std::ofstream(root() + "/millpond-1-00000000000000dd") << "a file";
  // Not empty, and no owner's file: not made by us.
  fs::create_directory(root() + "/millpond-1-00000000000000ee");
  std::ofstream(root() + "/millpond-1-00000000000000ee/data");
  const auto before = names_in(root());
  { const ScratchRoot scratch(root(), "auto"); }
  EXPECT_EQ(names_in(root()), before);
  EXPECT_TRUE(fs::exists(outside + "/owner"));
}

TEST_F(Scratch, a_dead_owners_symbolic_links_are_removed_and_not_followed) {
  const std::string dead = killed_owner(false);
  fs::create_directory(root() + "/precious");
  std::ofstream(root() + "/precious/file") << "x";
  fs::create_directory(dead + "/below");
  fs::create_symlink(root() + "/precious", dead + "/below/link");
  fs::create_symlink(root() + "/precious/file", dead + "/link");
  const ScratchRoot scratch(root(), "auto");
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(root() + "/precious/file"));
}

// Starting, living, dying and reclaiming, all at once: a living one never loses its directory.
TEST_F(Scratch, starters_at_the_same_moment_do_not_take_each_others_place) {
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      int lost = 0;
      for (int round = 0; round < 40; ++round) {
        try {
          auto scratch = std::make_unique<ScratchRoot>(root(), "false");
          std::ofstream(scratch->path() + "/mine") << round;
          ::usleep(500);
          if (!fs::exists(scratch->path() + "/mine") || !fs::exists(scratch->path() + "/owner")) {
            ++lost;
          }
          scratch->create(4096, "bucket");
          if (round % 3 == 0) {  // dies: its descriptors close, its directory stays
            scratch->forked_child();
          }
        } catch (const std::exception&) {
          ++lost;
        }
      }
      ::_exit(lost == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  { const ScratchRoot last(root(), "false"); }
  EXPECT_TRUE(names_in(root()).empty());
}

TEST_F(Scratch, a_forked_child_leaves_the_parents_directory_alone) {
  auto scratch = std::make_unique<ScratchRoot>(root(), "auto");
  EXPECT_EQ(sandbox::in_child([&] { scratch.reset(); }), "");
  EXPECT_TRUE(fs::exists(scratch->path() + "/owner"));
  const ScratchRoot other(root(), "auto");
  EXPECT_EQ(other.reclaimed(), 0u);
}

TEST_F(Scratch, a_root_that_is_not_there_is_refused_and_not_made) {
  try {
    const ScratchRoot scratch(root() + "/absent", "auto");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_IO);
    EXPECT_NE(std::string(error.what()).find(root() + "/absent"), std::string::npos);
  }
  EXPECT_FALSE(fs::exists(root() + "/absent"));
}

TEST_F(Scratch, buffered_files_leave_the_page_cache_as_they_go) {
  ScratchRoot scratch(root(), "false");
  EXPECT_FALSE(scratch.ability().direct);
  constexpr std::uint64_t kBytes = 16u << 20;
  const Fd fd = scratch.create(kBytes, "bucket");
  const std::vector<char> bytes(kBytes, 'x');
  ASSERT_EQ(::pwrite(fd.get(), bytes.data(), kBytes, 0), static_cast<ssize_t>(kBytes));
  void* map = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(map, MAP_FAILED);
  const auto resident = [&] {
    std::vector<unsigned char> pages(kBytes / 4096);
    ::mincore(map, kBytes, pages.data());
    return std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
  };
  EXPECT_GT(resident(), 4000);
  EXPECT_EQ(drop_cached(fd.get(), 0, kBytes), 0);
  EXPECT_LT(resident(), 64);
  ::munmap(map, kBytes);
}

}  // namespace
}  // namespace millpond::plugin
