// What Engine makes of attempts that fail, come short, or do not come back.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <ostream>
#include <thread>

#include "tests/io/rig.h"
#include "tests/sanitized.h"

namespace millpond::plugin {
namespace {

using sandbox::fill;
using sandbox::PageMemory;
using sandbox::read_plainly;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBytes = 256 * 1024;
constexpr milliseconds kTimeout(150);
// Short counts around every boundary that matters to O_DIRECT.
constexpr std::uint64_t kCuts[] = {0, 1, 511, 512, 4095, kBytes - 1};

class EngineFaults : public testing::Test {
 protected:
  void SetUp() override {
    fd_ = open_new(directory_.path() + "/file", O_DIRECT);
    if (!fd_) fd_ = open_new(directory_.path() + "/file");
    ASSERT_TRUE(fd_);
    ASSERT_EQ(::ftruncate(fd_.get(), 4 * kBytes), 0);
    fill(sent_.data(), kBytes, 1);
  }
  // A write and a read of kBytes under the fault; `succeeds` says which of the two outcomes.
  // Whatever it is, nothing may be left in the engine, and bytes that are said to be done are.
  void run(Fault fault, Transfer::Kind kind, bool& succeeds, int& error) {
    const bool write = kind == Transfer::Kind::kWrite;
    rig_.faults->set({});
    std::memset(back_.data(), 0xee, kBytes);
    if (!write) {
      ASSERT_EQ(rig_.write(fd_.get(), kBytes, sent_.data(), kBytes).error, 0);
    }
    fault.only = kind;
    rig_.faults->set(fault);
    const auto begin = Clock::now();
    std::byte* memory = write ? sent_.data() : back_.data();
    const Transfer transfer = rig_.run(kind, fd_.get(), kBytes, memory, kBytes);
    EXPECT_LT(Clock::now() - begin, kTimeout + milliseconds(2000));
    EXPECT_GE(rig_.faults->met(), 1u);
    EXPECT_EQ(rig_.faults->out(), 0u);
    EXPECT_EQ(rig_.engine->owned_bytes(), 0u);
    EXPECT_TRUE(rig_.engine->drain_owned(milliseconds(0)));
    EXPECT_LE(transfer.done, kBytes);
    const std::vector<std::byte> got =
        write ? read_plainly(directory_.path() + "/file", kBytes, transfer.done)
              : std::vector<std::byte>(back_.data(), back_.data() + transfer.done);
    EXPECT_EQ(got.size(), transfer.done);
    EXPECT_TRUE(same(got, sent_.data()));
    succeeds = transfer.error == 0;
    error = transfer.error;
    if (succeeds) {
      EXPECT_EQ(transfer.done, kBytes);
    }
  }

  void be_impatient() { rig_ = Rig("auto", 4, kTimeout); }

  sandbox::TempDirectory directory_{true};
  Fd fd_;
  PageMemory sent_{kBytes};
  PageMemory back_{kBytes};
  Rig rig_{"auto", 4, milliseconds(20'000)};
};

constexpr Transfer::Kind kKinds[] = {Transfer::Kind::kWrite, Transfer::Kind::kRead};

TEST_F(EngineFaults, B02_a_completion_of_zero_bytes_is_an_error) {
  for (const auto kind : kKinds) {
    Fault fault;
    fault.kind = Fault::Kind::kShortTo;
    fault.bytes = 0;
    bool succeeds = true;
    int error = 0;
    run(fault, kind, succeeds, error);
    EXPECT_FALSE(succeeds);
    EXPECT_EQ(error, EIO);
  }
}

TEST_F(EngineFaults, a_short_count_once_is_continued) {
  for (const auto shape : {Fault::Kind::kShortBy, Fault::Kind::kShortTo}) {
    for (const std::uint64_t cut : kCuts) {
      if (shape == Fault::Kind::kShortTo && cut == 0) continue;
      for (const auto kind : kKinds) {
        SCOPED_TRACE(testing::Message() << int(shape) << " cut " << cut << " " << int(kind));
        Fault fault;
        fault.kind = shape;
        fault.bytes = cut;
        bool succeeds = false;
        int error = 0;
        run(fault, kind, succeeds, error);
        EXPECT_TRUE(succeeds) << error;
        if (shape == Fault::Kind::kShortBy && cut == 0) continue;
        EXPECT_GE(rig_.faults->attempts(), 2u);  // the rest was really asked for
      }
    }
  }
}

TEST_F(EngineFaults, short_counts_for_ever_end_by_the_timeout) {
  be_impatient();
  for (const auto shape : {Fault::Kind::kShortBy, Fault::Kind::kShortTo}) {
    for (const std::uint64_t cut : kCuts) {
      for (const auto kind : kKinds) {
        SCOPED_TRACE(testing::Message() << int(shape) << " cut " << cut << " " << int(kind));
        Fault fault;
        fault.kind = shape;
        fault.bytes = cut;
        fault.for_ever = true;
        bool succeeds = false;
        int error = 0;
        run(fault, kind, succeeds, error);
        if (shape == Fault::Kind::kShortBy && cut == 0) {
          EXPECT_TRUE(succeeds);
        } else if (!succeeds) {
          EXPECT_EQ(error, EIO);
        }
      }
    }
  }
}

// A continuation after an odd count that asks for an odd offset is EINVAL with O_DIRECT.
TEST_F(EngineFaults, going_on_after_an_odd_count_stays_aligned) {
  Fault strict;
  strict.kind = Fault::Kind::kUnaligned;
  strict.for_ever = true;
  for (const std::uint64_t cut : {std::uint64_t{1}, std::uint64_t{511}, std::uint64_t{4095}}) {
    auto outer = std::make_unique<FaultEngine>(make_raw_engine("auto", 4).raw);
    outer->set(strict);
    FaultEngine* refuses = outer.get();
    auto cutter = std::make_unique<FaultEngine>(std::move(outer));
    Fault once;
    once.kind = Fault::Kind::kShortBy;
    once.bytes = cut;
    cutter->set(once);
    Engine engine(std::move(cutter), milliseconds(20'000));
    // The cut attempt itself is odd by the harness's making: it is let through.
    strict.attempt = 2;
    refuses->set(strict);
    Transfer transfer;
    transfer.kind = Transfer::Kind::kWrite;
    const Fd buffered = open_new(directory_.path() + "/buffered");
    transfer.fd = buffered.get();
    transfer.memory = sent_.data();
    transfer.bytes = kBytes;
    engine.submit(&transfer);
    Transfer* done[1] = {};
    ASSERT_EQ(engine.reap(done, true), 1u);
    EXPECT_EQ(transfer.error, 0);
    EXPECT_EQ(transfer.done, kBytes);
    EXPECT_EQ(refuses->met(), 0u);
    EXPECT_TRUE(same(read_plainly(directory_.path() + "/buffered", 0, kBytes), sent_.data()));
  }
}

TEST_F(EngineFaults, B15_EINTR_and_EAGAIN_once_are_retried) {
  for (const int answer : {EINTR, EAGAIN}) {
    for (const auto kind : kKinds) {
      Fault fault;
      fault.kind = Fault::Kind::kError;
      fault.error = answer;
      bool succeeds = false;
      int error = 0;
      run(fault, kind, succeeds, error);
      EXPECT_TRUE(succeeds);
      EXPECT_EQ(rig_.faults->attempts(), 2u);
    }
  }
}

TEST_F(EngineFaults, EINTR_and_EAGAIN_for_ever_are_retried_until_the_timeout) {
  be_impatient();
  for (const int answer : {EINTR, EAGAIN}) {
    for (const auto kind : kKinds) {
      Fault fault;
      fault.kind = Fault::Kind::kError;
      fault.error = answer;
      fault.for_ever = true;
      bool succeeds = true;
      int error = 0;
      const auto begin = Clock::now();
      run(fault, kind, succeeds, error);
      EXPECT_GE(Clock::now() - begin, kTimeout);
      EXPECT_FALSE(succeeds);
      EXPECT_EQ(error, answer);
      EXPECT_GT(rig_.faults->attempts(), 5u);
    }
  }
}

TEST_F(EngineFaults, B15_other_errors_fail_at_once) {
  for (const int answer : {EIO, ENOSPC, EDQUOT, EINVAL, EACCES}) {
    for (const bool for_ever : {false, true}) {
      for (const auto kind : kKinds) {
        Fault fault;
        fault.kind = Fault::Kind::kError;
        fault.error = answer;
        fault.for_ever = for_ever;
        bool succeeds = true;
        int error = 0;
        run(fault, kind, succeeds, error);
        EXPECT_FALSE(succeeds);
        EXPECT_EQ(error, answer);
        EXPECT_EQ(rig_.faults->attempts(), 1u);
      }
    }
  }
}

TEST_F(EngineFaults, an_overdue_transfer_comes_back_once_and_its_memory_stays_owned) {
  be_impatient();
  Fault fault;
  fault.kind = Fault::Kind::kNever;
  rig_.faults->set(fault);
  Transfer late;
  late.kind = Transfer::Kind::kRead;
  late.fd = fd_.get();
  late.memory = back_.data();
  late.bytes = kBytes;
  const auto begin = Clock::now();
  rig_.engine->submit(&late);
  EXPECT_EQ(rig_.reap_all().size(), 1u);
  EXPECT_GE(Clock::now() - begin, kTimeout);
  EXPECT_EQ(late.error, ETIMEDOUT);
  EXPECT_EQ(rig_.engine->owned_bytes(), kBytes);
  EXPECT_EQ(rig_.engine->in_flight(), 0u);
  EXPECT_FALSE(rig_.engine->drain_owned(milliseconds(20)));
  EXPECT_EQ(rig_.write(fd_.get(), 0, sent_.data(), kBytes).error, 0);  // others go on
  late.error = -1;  // the late answer must not touch it
  rig_.faults->let_go();
  EXPECT_TRUE(rig_.engine->drain_owned(milliseconds(2000)));
  EXPECT_EQ(rig_.engine->owned_bytes(), 0u);
  EXPECT_EQ(rig_.reap_all().size(), 0u);
  EXPECT_EQ(late.error, -1);
  EXPECT_EQ(rig_.faults->out(), 0u);
}

TEST_F(EngineFaults, a_slow_answer_within_the_timeout_is_no_error) {
  Fault fault;
  fault.kind = Fault::Kind::kDelay;
  fault.delay = milliseconds(50);
  rig_.faults->set(fault);
  EXPECT_EQ(rig_.write(fd_.get(), 0, sent_.data(), kBytes).error, 0);
}

// A process that was stopped for longer than the timeout finds its deadlines where they were.
TEST_F(EngineFaults, time_in_which_nobody_looked_does_not_count) {
  be_impatient();
  Fault fault;
  fault.kind = Fault::Kind::kDelay;
  fault.delay = milliseconds(1600);
  rig_.faults->set(fault);
  Transfer slow;
  slow.kind = Transfer::Kind::kRead;
  slow.fd = fd_.get();
  slow.memory = back_.data();
  slow.bytes = kBytes;
  rig_.engine->submit(&slow);
  std::this_thread::sleep_for(milliseconds(1550));
  EXPECT_EQ(rig_.reap_all().size(), 1u);
  EXPECT_EQ(slow.error, 0);
  // What starts after an absence has no more than the timeout.
  std::this_thread::sleep_for(milliseconds(2200));
  fault.kind = Fault::Kind::kNever;
  rig_.faults->set(fault);
  const auto begin = Clock::now();
  EXPECT_EQ(rig_.read(fd_.get(), 0, back_.data(), kBytes).error, ETIMEDOUT);
  EXPECT_LT(Clock::now() - begin, milliseconds(2000));
  rig_.faults->let_go();
  EXPECT_TRUE(rig_.engine->drain_owned(milliseconds(5000)));
}

TEST_F(EngineFaults, what_waits_behind_a_dead_device_ends_as_well) {
  be_impatient();
  Fault fault;
  fault.kind = Fault::Kind::kNever;
  fault.for_ever = true;
  rig_.faults->set(fault);
  std::vector<Transfer> transfers(12);  // three times the depth
  for (Transfer& transfer : transfers) {
    transfer.kind = Transfer::Kind::kWrite;
    transfer.fd = fd_.get();
    transfer.memory = sent_.data();
    transfer.bytes = 4096;
    rig_.engine->submit(&transfer);
  }
  EXPECT_EQ(rig_.reap_all().size(), transfers.size());
  for (const Transfer& transfer : transfers) EXPECT_EQ(transfer.error, ETIMEDOUT);
  EXPECT_EQ(rig_.engine->owned_bytes(), 4 * 4096u);
  rig_.faults->let_go();
  EXPECT_TRUE(rig_.engine->drain_owned(milliseconds(2000)));
}

// destroy must return when the kernel never answers; what it holds is left alone for good.
TEST_F(EngineFaults, an_engine_whose_transfers_never_end_is_destroyed_without_waiting_for_them) {
  be_impatient();
  Fault fault;
  fault.kind = Fault::Kind::kNever;
  rig_.faults->set(fault);
  static PageMemory kept(4096);  // owned by the kernel: outlives the engine
  static Transfer transfer;      // not reaped either
  transfer.kind = Transfer::Kind::kRead;
  transfer.fd = fd_.get();
  transfer.memory = kept.data();
  transfer.bytes = 4096;
  rig_.engine->submit(&transfer);
  const auto begin = Clock::now();
  rig_.engine.reset();
  EXPECT_LT(Clock::now() - begin, kTimeout + milliseconds(2000));
}

class HugeTransfer : public testing::TestWithParam<const char*> {};

// One call of the kernel moves 0x7ffff000 bytes at most. The memory is a pattern of an odd number
// of pages, mapped again and again, so that the test needs neither 2 GiB nor a period that hides a
// piece in the wrong place.
TEST_P(HugeTransfer, B05_transfer_beyond_2GiB) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "ThreadSanitizer marks each byte that moves: minutes, and no thread more";
  }
  constexpr std::uint64_t kHuge = 2200ull << 20;
  constexpr std::uint64_t kPattern = 2049 * 4096;
  const Fd pattern(::memfd_create("pattern", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(pattern.get(), kPattern), 0);
  auto* memory = static_cast<std::byte*>(
      ::mmap(nullptr, kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  for (std::uint64_t at = 0; at < kHuge; at += kPattern) {
    ASSERT_NE(::mmap(memory + at, std::min(kPattern, kHuge - at), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, pattern.get(), 0),
              MAP_FAILED);
  }
  std::vector<std::byte> expected(kPattern);
  fill(expected.data(), kPattern, 99);
  std::copy(expected.begin(), expected.end(), memory);

  sandbox::TempDirectory directory;
  const std::string path = directory.path() + "/huge";
  Fd fd = open_new(path, O_DIRECT);
  if (!fd) fd = open_new(path);
  Rig rig(GetParam(), 8, std::chrono::seconds(200));
  const Transfer write = rig.write(fd.get(), 4096, memory, kHuge);
  ASSERT_EQ(write.error, 0);
  EXPECT_EQ(write.done, kHuge);
  EXPECT_EQ(::lseek(fd.get(), 0, SEEK_END), static_cast<off_t>(kHuge + 4096));
  const auto check = [&](std::uint64_t begin, std::uint64_t bytes) {
    const std::vector<std::byte> got = read_plainly(path, 4096 + begin, bytes);
    ASSERT_EQ(got.size(), bytes);
    for (std::uint64_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(got[i], expected[(begin + i) % kPattern]) << "at " << begin + i;
    }
  };
  for (const std::uint64_t edge : {1ull << 30, 0x7ffff000ull, 1ull << 31}) {
    check(edge - 8192, 16384);
  }
  check(kHuge - 8192, 8192);
  for (std::uint64_t at = 0; at < kHuge; at += 32u << 20) check(at, 4096);

  // Into the same memory, wiped: a piece that is not read leaves a hole in the pattern.
  std::fill_n(memory, kPattern, std::byte{0});
  const Transfer read = rig.read(fd.get(), 4096, memory, kHuge);
  EXPECT_EQ(read.error, 0);
  EXPECT_EQ(read.done, kHuge);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory));
  ::munmap(memory, kHuge);
}

INSTANTIATE_TEST_SUITE_P(Kinds, HugeTransfer, testing::Values("auto", "threads"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace millpond::plugin
