// Which engine a process gets where the system refuses something, for real; always the same bytes.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "millpond/error.hpp"
#include "tests/io/rig.h"
#include "tests/sanitized.h"

namespace millpond::plugin {
namespace {

using sandbox::fill;
using sandbox::PageMemory;
using sandbox::read_plainly;
using sandbox::refuse;
using sandbox::require;
using std::chrono::seconds;

constexpr std::uint64_t kMiB = 1u << 20;

class Degrade : public testing::Test {
 protected:
  void SetUp() override {  // for another user as well
    ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
    ASSERT_EQ(::fchmod(file_.get(), 0644), 0);
  }
  // Moves 4 MiB through the engine that "auto" chooses, out and back, and returns the choice's
  // line.
  std::string move_bytes(std::uint32_t depth = 8) {
    EngineChoice choice = make_raw_engine("auto", depth);
    Engine engine(std::move(choice.raw), seconds(20));
    PageMemory memory(8 * kMiB);
    engine.use_memory(memory.data(), memory.size());
    fill(memory.data(), 4 * kMiB, 17);
    for (const auto kind : {Transfer::Kind::kWrite, Transfer::Kind::kRead}) {
      std::vector<Transfer> transfers(16);
      for (std::size_t i = 0; i < transfers.size(); ++i) {
        const std::uint64_t at = i * kMiB / 4;
        transfers[i].kind = kind;
        transfers[i].fd = file_.get();
        transfers[i].offset = at;
        transfers[i].memory = memory.data() + at + (kind == Transfer::Kind::kRead ? 4 * kMiB : 0);
        transfers[i].bytes = kMiB / 4;
        engine.submit(&transfers[i]);
      }
      Transfer* done[4] = {};
      while (engine.in_flight() > 0) engine.reap(done, true);
      for (const Transfer& transfer : transfers) require(transfer.error == 0, "transfer");
    }
    require(std::memcmp(memory.data(), memory.data() + 4 * kMiB, 4 * kMiB) == 0, "read back");
    require(same(read_plainly(directory_.path() + "/file", 0, 4 * kMiB), memory.data()), "file");
    name_ = engine.name();
    engine.use_memory(nullptr, 0);
    return choice.reason;
  }
  void limit(int what, rlim_t value) {
    const struct rlimit both = {value, value};
    require(::setrlimit(static_cast<__rlimit_resource>(what), &both) == 0, "setrlimit");
  }
  static bool holds(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  }

  sandbox::TempDirectory directory_;
  Fd file_ = open_new(directory_.path() + "/file");
  std::string name_;
};

TEST_F(Degrade, B08_io_uring_setup_refused_gives_threads_and_one_line) {
  for (const int error : {EPERM, ENOSYS}) {
    MILLPOND_IN_CHILD([&] {
      refuse({{SYS_io_uring_setup, error}});
      const std::string reason = move_bytes();
      require(name_ == "threads", "engine " + name_);
      require(holds(reason, error == EPERM ? "EPERM" : "ENOSYS"), reason);
      require(!holds(reason, "\n"), "one line");
      try {
        make_raw_engine("io_uring", 8);
        require(false, "a named engine is refused");
      } catch (const Error& refused) {
        require(refused.native() == error, refused.what());
      }
    });
  }
}

TEST_F(Degrade, B08_io_uring_enter_refused_gives_threads) {
  MILLPOND_IN_CHILD([&] {
    refuse({{SYS_io_uring_enter, EPERM}});
    require(holds(move_bytes(), "EPERM"), "reason");
    require(name_ == "threads", "engine " + name_);
  });
}

TEST_F(Degrade, registration_refused_gives_a_plain_ring) {
  MILLPOND_IN_CHILD([&] {
    refuse({{SYS_io_uring_register, EPERM}});
    const std::string reason = move_bytes();
    if (name_ == "threads") sandbox::skip(reason);
    require(name_ == "io_uring_plain", "engine " + name_);
    require(holds(reason, "io_uring_plain") && holds(reason, "EPERM"), reason);
  });
}

TEST_F(Degrade, memlock_of_64_KiB_as_a_normal_user) {
  MILLPOND_IN_CHILD([&] {
    sandbox::become_nobody();
    limit(RLIMIT_MEMLOCK, 65536);
    const std::string reason = move_bytes();
    if (name_ == "threads") sandbox::skip(reason);
    require(name_ == "io_uring_plain", "engine " + name_ + ", " + reason);
    require(holds(reason, "RLIMIT_MEMLOCK"), reason);
  });
}

TEST_F(Degrade, memlock_too_small_for_the_depth_gives_a_shallower_ring_or_threads) {
  MILLPOND_IN_CHILD([&] {
    sandbox::become_nobody();
    limit(RLIMIT_MEMLOCK, 16384);
    const std::string reason = move_bytes(1024);
    require(holds(reason, "RLIMIT_MEMLOCK") || name_ == "threads", reason);
  });
  MILLPOND_IN_CHILD([&] {
    sandbox::become_nobody();
    limit(RLIMIT_MEMLOCK, 0);
    move_bytes();
  });
}

TEST_F(Degrade, sixteen_descriptors_are_enough) {
  MILLPOND_IN_CHILD([&] {
    limit(RLIMIT_NOFILE, 16);
    move_bytes();
  });
}

TEST_F(Degrade, no_descriptor_left_for_a_ring_gives_threads) {
  if (kAddressSanitizer) GTEST_SKIP() << "the sanitizer needs descriptors for its own checks";
  MILLPOND_IN_CHILD([&] {
    const int next = ::dup(0);
    limit(RLIMIT_NOFILE, static_cast<rlim_t>(next) + 1);
    EngineChoice choice = make_raw_engine("auto", 8);
    require(std::string(choice.raw->name()) == "threads", choice.reason);
    require(holds(choice.reason, "EMFILE"), choice.reason);
  });
}

TEST_F(Degrade, an_unknown_engine_is_refused_with_the_option_named) {
  try {
    make_raw_engine("uring", 8);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_OPTION);
    EXPECT_EQ(error.field_name(), "options.io_engine");
  }
}

TEST_F(Degrade, threads_when_asked_for) {
  EngineChoice choice = make_raw_engine("threads", 3);
  EXPECT_STREQ(choice.raw->name(), "threads");
  EXPECT_EQ(choice.raw->depth(), 3u);
}

}  // namespace
}  // namespace millpond::plugin
