// Transfers through both engines, on real files.
#include "plugin/io/engine.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <thread>

#include "millpond/error.hpp"
#include "tests/io/rig.h"

namespace millpond::plugin {
namespace {

using sandbox::fill;
using sandbox::PageMemory;
using sandbox::read_plainly;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kMiB = 1u << 20;

class Engines : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      make_raw_engine(GetParam(), 4);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  Rig make(std::uint32_t depth = 8, milliseconds timeout = seconds(20)) {
    return Rig(GetParam(), depth, timeout);
  }
  std::string file(const char* name) const { return directory_.path() + "/" + name; }
  sandbox::TempDirectory directory_;
};

TEST_P(Engines, B01_every_byte_of_odd_sizes_comes_back) {
  Rig rig = make();
  for (const std::uint64_t elements : {1u, 127u, 1023u, 1025u, 7206000u}) {
    const std::uint64_t bytes = elements * 4;
    const std::uint64_t whole = (bytes + 4095) / 4096 * 4096;
    PageMemory sent(whole);
    PageMemory back(whole);
    fill(sent.data(), bytes, elements);
    const Fd buffered = open_new(file("buffered"));
    ASSERT_EQ(rig.write(buffered.get(), 4096, sent.data(), bytes).error, 0);
    EXPECT_EQ(read_plainly(file("buffered"), 4096, whole).size(), bytes);
    EXPECT_TRUE(same(read_plainly(file("buffered"), 4096, bytes), sent.data()));
    ASSERT_EQ(rig.read(buffered.get(), 4096, back.data(), bytes).error, 0);
    EXPECT_EQ(std::memcmp(back.data(), sent.data(), bytes), 0);
    rig.engine->forget(buffered.get());

    const Fd direct = open_new(file("direct"), O_DIRECT);
    if (!direct) continue;
    ASSERT_EQ(rig.write(direct.get(), 8192, sent.data(), whole).error, 0);
    EXPECT_TRUE(same(read_plainly(file("direct"), 8192, whole), sent.data()));
    std::memset(back.data(), 0xee, whole);
    const Transfer read = rig.read(direct.get(), 8192, back.data(), whole);
    EXPECT_EQ(read.error, 0);
    EXPECT_EQ(read.done, whole);
    EXPECT_EQ(std::memcmp(back.data(), sent.data(), whole), 0);
    rig.engine->forget(direct.get());
  }
}

TEST_P(Engines, more_transfers_than_the_depth_all_end_where_they_belong) {
  Rig rig = make(4);
  constexpr std::size_t kCount = 400;
  constexpr std::uint64_t kPiece = 16384;
  rig.engine->reserve(kCount);
  PageMemory sent(kCount * kPiece);
  PageMemory back(kCount * kPiece);
  fill(sent.data(), sent.size(), 7);
  rig.engine->use_memory(sent.data(), sent.size());
  const Fd fd = open_new(file("many"));
  std::vector<std::size_t> order(kCount);
  for (std::size_t i = 0; i < kCount; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  std::vector<Transfer> transfers(kCount);
  for (const auto kind : {Transfer::Kind::kWrite, Transfer::Kind::kRead}) {
    std::vector<Transfer*> batch;
    for (const std::size_t i : order) {
      transfers[i] = {};
      transfers[i].kind = kind;
      transfers[i].fd = fd.get();
      transfers[i].offset = i * kPiece;
      transfers[i].memory = (kind == Transfer::Kind::kWrite ? sent : back).data() + i * kPiece;
      transfers[i].bytes = kPiece;
      transfers[i].tag = i;
      batch.push_back(&transfers[i]);
    }
    rig.engine->submit(batch);
    EXPECT_EQ(rig.engine->in_flight(), kCount);
    const std::vector<Transfer*> reaped = rig.reap_all();
    EXPECT_EQ(reaped.size(), kCount);
    for (const Transfer* transfer : reaped) {
      EXPECT_EQ(transfer->error, 0);
      EXPECT_EQ(transfer->done, kPiece);
      EXPECT_EQ(transfer, &transfers[transfer->tag]);
    }
  }
  EXPECT_TRUE(same(read_plainly(file("many"), 0, sent.size()), sent.data()));
  EXPECT_EQ(std::memcmp(back.data(), sent.data(), sent.size()), 0);
  EXPECT_EQ(rig.faults->out(), 0u);
}

TEST_P(Engines, offsets_beyond_two_to_the_32_elements) {
  Rig rig = make();
  PageMemory sent(kMiB);
  PageMemory back(kMiB);
  const Fd fd = open_new(file("far"));
  for (const std::uint64_t offset : {(1ull << 31) * 4, (1ull << 32) * 4 + 4096}) {
    fill(sent.data(), kMiB, offset);
    ASSERT_EQ(rig.write(fd.get(), offset, sent.data(), kMiB).error, 0);
    EXPECT_TRUE(same(read_plainly(file("far"), offset, kMiB), sent.data()));
    ASSERT_EQ(rig.read(fd.get(), offset, back.data(), kMiB).error, 0);
    EXPECT_EQ(std::memcmp(back.data(), sent.data(), kMiB), 0);
  }
}

TEST_P(Engines, the_end_of_the_file_is_an_error_at_once) {
  Rig rig = make();
  PageMemory memory(8192);
  const Fd fd = open_new(file("short"));
  ASSERT_EQ(::ftruncate(fd.get(), 5000), 0);
  const auto begin = std::chrono::steady_clock::now();
  const Transfer transfer = rig.read(fd.get(), 0, memory.data(), 8192);
  EXPECT_EQ(transfer.error, EIO);
  EXPECT_EQ(transfer.done, 5000u);
  EXPECT_EQ(rig.read(fd.get(), 8192, memory.data(), 4096).error, EIO);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(2));
}

TEST_P(Engines, a_bad_descriptor_fails_and_nothing_else_does) {
  Rig rig = make();
  PageMemory memory(8192);
  const Fd fd = open_new(file("good"));
  EXPECT_EQ(rig.write(-1, 0, memory.data(), 4096).error, EBADF);
  EXPECT_EQ(rig.write(fd.get(), 0, memory.data(), 4096).error, 0);
  EXPECT_EQ(rig.write(fd.get(), 0, memory.data(), 0).error, 0);
}

TEST_P(Engines, a_descriptor_number_that_comes_back_means_the_new_file) {
  Rig rig = make();
  PageMemory one(4096);
  PageMemory two(4096);
  fill(one.data(), 4096, 1);
  fill(two.data(), 4096, 2);
  Fd fd = open_new(file("one"));
  const int number = fd.get();
  ASSERT_EQ(rig.write(number, 0, one.data(), 4096).error, 0);
  rig.engine->forget(number);
  fd = Fd();
  fd = open_new(file("two"));
  ASSERT_EQ(fd.get(), number);
  ASSERT_EQ(rig.write(number, 0, two.data(), 4096).error, 0);
  EXPECT_TRUE(same(read_plainly(file("one"), 0, 4096), one.data()));
  EXPECT_TRUE(same(read_plainly(file("two"), 0, 4096), two.data()));
}

// A registered page stays the kernel's page when its address is mapped anew.
TEST_P(Engines, memory_that_is_mapped_anew_is_the_memory_that_moves) {
  Rig rig = make();
  const Fd fd = open_new(file("memory"));
  constexpr std::uint64_t kBytes = 4 * kMiB;
  const auto map = [](void* where, int fixed) {
    return static_cast<std::byte*>(
        ::mmap(where, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0));
  };
  std::byte* memory = map(nullptr, 0);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    rig.engine->use_memory(memory, kBytes);
    fill(memory, kBytes, round);
    ASSERT_EQ(rig.write(fd.get(), 0, memory, kBytes).error, 0);
    EXPECT_TRUE(same(read_plainly(file("memory"), 0, kBytes), memory));
    rig.engine->use_memory(nullptr, 0);
    ::munmap(memory, kBytes);
    ASSERT_EQ(map(memory, MAP_FIXED), memory);
  }
  ::munmap(memory, kBytes);
}

TEST_P(Engines, transfers_of_a_thread_that_has_ended_are_reaped_by_another) {
  Rig rig = make();
  PageMemory memory(8 * kMiB);
  fill(memory.data(), memory.size(), 3);
  const Fd fd = open_new(file("thread"), O_DIRECT);
  if (!fd) GTEST_SKIP() << "no O_DIRECT in the temporary directory";
  std::vector<Transfer> transfers(8);
  std::thread([&] {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      transfers[i].kind = Transfer::Kind::kWrite;
      transfers[i].fd = fd.get();
      transfers[i].offset = i * kMiB;
      transfers[i].memory = memory.data() + i * kMiB;
      transfers[i].bytes = kMiB;
      rig.engine->submit(&transfers[i]);
    }
  }).join();
  for (const Transfer* transfer : rig.reap_all()) EXPECT_EQ(transfer->error, 0);
  EXPECT_TRUE(same(read_plainly(file("thread"), 0, memory.size()), memory.data()));
}

volatile std::sig_atomic_t alarms = 0;

TEST_P(Engines, an_alarm_each_millisecond_changes_nothing) {
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = [](int) { alarms = alarms + 1; };  // without SA_RESTART
  ::sigaction(SIGALRM, &action, &before);
  const itimerval often = {{0, 1000}, {0, 1000}};
  const itimerval never = {};
  alarms = 0;
  ::setitimer(ITIMER_REAL, &often, nullptr);
  {
    Rig rig = make(4);
    PageMemory sent(kMiB);
    PageMemory back(kMiB);
    const Fd fd = open_new(file("alarm"));
    for (std::uint64_t i = 0; i < 100; ++i) {
      fill(sent.data(), kMiB, i);
      ASSERT_EQ(rig.write(fd.get(), i % 4 * kMiB, sent.data(), kMiB).error, 0);
      ASSERT_EQ(rig.read(fd.get(), i % 4 * kMiB, back.data(), kMiB).error, 0);
      ASSERT_EQ(std::memcmp(back.data(), sent.data(), kMiB), 0);
    }
  }
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(alarms, 20);
}

TEST_P(Engines, a_forked_child_touches_nothing_and_the_parent_goes_on) {
  Rig rig = make();
  PageMemory memory(8 * kMiB);
  fill(memory.data(), memory.size(), 11);
  const Fd fd = open_new(file("fork"));
  Transfer transfer;
  transfer.kind = Transfer::Kind::kWrite;
  transfer.fd = fd.get();
  transfer.memory = memory.data();
  transfer.bytes = memory.size();
  rig.engine->use_memory(memory.data(), memory.size());
  rig.engine->submit(&transfer);
  EXPECT_EQ(sandbox::in_child([&] { rig.engine.reset(); }, 10), "");
  rig.reap_all();
  EXPECT_EQ(transfer.error, 0);
  EXPECT_EQ(rig.write(fd.get(), memory.size(), memory.data(), memory.size()).error, 0);
  EXPECT_TRUE(same(read_plainly(file("fork"), memory.size(), memory.size()), memory.data()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Engines, testing::Values("io_uring", "threads"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace millpond::plugin
