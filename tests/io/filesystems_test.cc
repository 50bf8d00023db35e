// Scratch files on filesystems that refuse things, made for real.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "millpond/error.hpp"
#include "tests/io/rig.h"

namespace millpond::plugin {
namespace {

namespace fs = std::filesystem;
using sandbox::fill;
using sandbox::mount_here;
using sandbox::PageMemory;
using sandbox::refuse;
using sandbox::require;

constexpr std::uint64_t kMiB = 1u << 20;

// Both engines, a file of 2 MiB out and back, in a scratch directory under `root`.
DirectoryAbility use(const std::string& root, const std::string& direct = "auto") {
  ScratchRoot scratch(root, direct);
  for (const char* kind : {"auto", "threads"}) {
    const Fd fd = scratch.create(2 * kMiB, "bucket");
    Rig rig(kind, 8, std::chrono::seconds(20));
    PageMemory sent(2 * kMiB);
    PageMemory back(2 * kMiB);
    fill(sent.data(), sent.size(), 3);
    require(rig.write(fd.get(), 0, sent.data(), sent.size()).error == 0, "write");
    require(drop_cached(fd.get(), 0, sent.size()) == 0, "drop_cached");
    require(rig.read(fd.get(), 0, back.data(), back.size()).error == 0, "read");
    require(std::memcmp(sent.data(), back.data(), sent.size()) == 0, "the same bytes");
  }
  return scratch.ability();
}

// Expects E_NO_SPACE for a file of `bytes` in a filesystem that has less, with both numbers.
void expect_no_space(const std::string& root, std::uint64_t bytes, std::uint64_t at_most) {
  ScratchRoot scratch(root, "auto");
  const std::uint64_t before = scratch.free_bytes();
  try {
    scratch.create(bytes, "bucket00000");
  } catch (const Error& error) {
    require(error.code() == MILLPOND_E_NO_SPACE, error.what());
    require(error.wanted() == bytes, error.what());
    require(error.got() > 0 && error.got() <= at_most, error.what());
    require(std::string(error.what()).find("bucket00000") != std::string::npos, error.what());
    ::usleep(1000);
    require(scratch.free_bytes() + kMiB / 4 >= before, "the space is given back");
    const Fd fits = scratch.create(kMiB, "small");  // and the directory is still of use
    return;
  }
  require(false, "no space");
}

class FileSystems : public testing::Test {
 protected:
  std::string at(const char* name) const { return directory_.path() + "/" + name; }
  sandbox::TempDirectory directory_;
};

TEST_F(FileSystems, B07_O_DIRECT_refused_at_open) {
  MILLPOND_IN_CHILD([&] {
    mount_here("ramfs", at("ramfs"), "");
    const Fd fd(::open(at("ramfs").c_str(), O_TMPFILE | O_RDWR | O_DIRECT, 0600));
    if (fd) sandbox::skip("ramfs takes O_DIRECT here");
    const DirectoryAbility ability = use(at("ramfs"));
    require(!ability.direct, "buffered");
    require(ability.reason.find("O_DIRECT: open gave EINVAL") != std::string::npos, ability.reason);
    try {
      use(at("ramfs"), "true");
      require(false, "direct = true is refused");
    } catch (const Error& error) {
      require(error.field_name() == "options.direct", error.what());
    }
  });
}

TEST_F(FileSystems, B07_O_DIRECT_refused_at_the_first_write_or_read) {
  for (const long call : {SYS_pwrite64, SYS_pread64}) {
    MILLPOND_IN_CHILD([&] {
      fs::create_directory(at("root"));
      refuse({{call, EINVAL}});
      const ScratchRoot scratch(at("root"), "auto");
      require(!scratch.ability().direct, "buffered");
      const std::string wanted =
          call == SYS_pwrite64 ? "the first write gave EINVAL" : "the first read gave EINVAL";
      require(scratch.ability().reason.find(wanted) != std::string::npos, scratch.ability().reason);
    });
  }
}

TEST_F(FileSystems, tmpfs) {
  MILLPOND_IN_CHILD([&] {
    mount_here("tmpfs", at("tmpfs"), "size=16m");
    require(use(at("tmpfs")).tmpfile, "O_TMPFILE");
  });
}

TEST_F(FileSystems, overlay) {
  MILLPOND_IN_CHILD([&] {
    mount_here("tmpfs", at("disk"), "size=32m");
    for (const char* name : {"/lower", "/upper", "/work"}) fs::create_directory(at("disk") + name);
    mount_here("overlay", at("overlay"),
               "lowerdir=" + at("disk") + "/lower,upperdir=" + at("disk") +
                   "/upper,workdir=" + at("disk") + "/work");
    use(at("overlay"));
  });
}

TEST_F(FileSystems, xfs_on_a_loop_device) {
  MILLPOND_IN_CHILD([&] {
    sandbox::mount_loop("xfs", at("xfs"), 320);
    const DirectoryAbility ability = use(at("xfs"));
    require(ability.direct && ability.tmpfile, ability.reason);
  });
}

TEST_F(FileSystems, B13_a_small_tmpfs_is_an_error_before_anything_is_written) {
  MILLPOND_IN_CHILD([&] {
    mount_here("tmpfs", at("tmpfs"), "size=4m");
    expect_no_space(at("tmpfs"), 8 * kMiB, 4 * kMiB);
  });
}

TEST_F(FileSystems, B13_a_full_small_ext4_is_an_error_before_anything_is_written) {
  MILLPOND_IN_CHILD([&] {
    sandbox::mount_loop("ext4", at("ext4"), 16);
    expect_no_space(at("ext4"), 32 * kMiB, 16 * kMiB);
  });
}

TEST_F(FileSystems, B13_without_fallocate_the_space_is_taken_by_writing) {
  MILLPOND_IN_CHILD([&] {
    mount_here("tmpfs", at("tmpfs"), "size=4m");
    refuse({{SYS_fallocate, EOPNOTSUPP}});
    {
      ScratchRoot scratch(at("tmpfs"), "auto");
      const Fd fd = scratch.create(3 * kMiB, "bucket");
      struct stat info = {};
      require(::fstat(fd.get(), &info) == 0 && info.st_size == 3 * kMiB, "size");
      require(info.st_blocks * 512 >= 3 * static_cast<long>(kMiB), "blocks");
    }
    expect_no_space(at("tmpfs"), 8 * kMiB, 4 * kMiB);
  });
}

TEST_F(FileSystems, without_O_TMPFILE_files_have_a_name_only_while_they_are_made) {
  MILLPOND_IN_CHILD([&] {
    fs::create_directory(at("root"));
    refuse({{SYS_openat, EOPNOTSUPP, 2, O_TMPFILE & ~O_DIRECTORY}});
    const DirectoryAbility ability = use(at("root"));
    require(!ability.tmpfile, "no O_TMPFILE");
    require(ability.reason.find("O_TMPFILE: open gave EOPNOTSUPP") != std::string::npos,
            ability.reason);
    ScratchRoot scratch(at("root"), "auto");
    const Fd fd = scratch.create(kMiB, "bucket");
    struct stat info = {};
    require(::fstat(fd.get(), &info) == 0, "stat");
    require((info.st_mode & 07777) == 0600 && info.st_nlink == 0, "mode and links");
    require(std::distance(fs::directory_iterator(scratch.path()), {}) == 1, "only the owner file");
  });
}

TEST_F(FileSystems, a_limit_on_file_sizes_is_an_error_and_no_signal) {
  MILLPOND_IN_CHILD([&] {
    fs::create_directory(at("root"));
    ScratchRoot scratch(at("root"), "auto");
    const struct rlimit small = {kMiB, kMiB};
    require(::setrlimit(RLIMIT_FSIZE, &small) == 0, "setrlimit");
    try {
      scratch.create(2 * kMiB, "bucket");
      require(false, "refused");
    } catch (const Error& error) {
      require(error.code() == MILLPOND_E_NO_SPACE && error.got() == kMiB, error.what());
    }
  });
}

// tmpfs undoes a fallocate that a signal interrupts.
TEST_F(FileSystems, space_is_reserved_under_an_alarm_each_millisecond) {
  MILLPOND_IN_CHILD([&] {
    mount_here("tmpfs", at("tmpfs"), "size=512m");
    struct sigaction action = {};
    action.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &action, nullptr);
    const itimerval often = {{0, 1000}, {0, 1000}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    ScratchRoot scratch(at("tmpfs"), "auto");
    const Fd fd = scratch.create(256 * kMiB, "bucket");
    require(static_cast<bool>(fd), "created");
  });
}

}  // namespace
}  // namespace millpond::plugin
