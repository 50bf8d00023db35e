// More state than memory, and more elements than 32 bits count.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tests/io/sandbox.h"
#include "tests/store/campaign.h"
#include "tests/store/repeated_store.h"
#include "tests/store/required.h"

namespace millpond::tests {
namespace {

using sandbox::require;

constexpr std::uint64_t kMebibyte = 1 << 20;
constexpr std::uint64_t kPeriod = 40 * 4096;  // no power of two: a piece in a wrong place shows

// Around the given places, and spread over all. But for what is left of eight at the end: there
// torch_cpu_fused/1 has other roundings than the period has in the same place.
void require_right(RepeatedStore& store, std::uint64_t elements,
                   std::vector<std::uint64_t> around) {
  elements = elements / 8 * 8;
  for (std::uint64_t i = 0; i <= 16; ++i) around.push_back(elements / 16 * i);
  for (const std::uint64_t place : around) {
    const std::uint64_t begin =
        std::min(std::max<std::uint64_t>(place, 3000) - 3000, elements - 6000);
    const std::string differs = store.differs_at(begin, 6000);
    require(differs.empty(), differs);
  }
}

// A control group of its own (v1), left and removed at the end.
class MemoryGroup {
 public:
  explicit MemoryGroup(std::uint64_t bytes)
      : path_("/sys/fs/cgroup/memory/millpond-test-" + std::to_string(getpid())) {
    std::error_code error;
    std::filesystem::create_directory(path_, error);
    if (error || !write("memory.limit_in_bytes", std::to_string(bytes)) ||
        !write("cgroup.procs", std::to_string(getpid()))) {
      std::filesystem::remove(path_, error);
      sandbox::skip("no control group (v1) with a memory limit can be made here");
    }
  }
  ~MemoryGroup() {
    std::ofstream("/sys/fs/cgroup/memory/cgroup.procs") << getpid();
    rmdir(path_.c_str());
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  std::uint64_t page_cache() const {
    std::ifstream file(path_ + "/memory.stat");
    std::string word;
    std::uint64_t cache = 0, mapped = 0, value = 0;
    while (file >> word >> value) {
      if (word == "cache") cache = value;
      if (word == "shmem") mapped = value;  // the patterns: memory, not a file's pages
    }
    return cache - std::min(cache, mapped);
  }

 private:
  bool write(const char* name, const std::string& text) const {
    std::ofstream file(path_ + "/" + name);
    file << text << std::flush;
    return static_cast<bool>(file);
  }
  std::string path_;
};

// The group kills what takes more than its limit; buffered files must not fill it with their pages.
void live_in_group(std::uint64_t limit, std::uint64_t state_bytes, const char* options) {
  const std::uint64_t elements = state_bytes / 12;
  const TemporaryDirectory small, large;
  Job other(small.path(), "\"tile_elements\": 4096, \"host_memory_bytes\": 400000");
  Training period(other, "period", {{"a", kPeriod, 0, 0}});
  const MemoryGroup group(limit);
  Job job(large.path(), options);
  Status status;
  require_ok(period.bind(&status), status, "bind of the period");
  RepeatedStore store(job, period, elements);
  require_ok(store.bind(&status), status, "bind");
  require(job.log_has("memory.limit_in_bytes"), "a line says whose limit it was");
  const std::uint64_t host_bytes = store.report.plan().host_bytes();
  require(host_bytes <= limit, "it took " + std::to_string(host_bytes));
  for (std::uint64_t number = 1; number <= 3; ++number) {
    require_ok(store.step(number, &status), status, "step");
    // The last writes of a step are under way when it returns, and pass the page cache.
    require_ok(phases().suspend(job.runtime, 0, &status), status, "suspend");
    require_ok(phases().resume(job.runtime, &status), status, "resume");
    require(group.page_cache() < 24 * kMebibyte,
            "the page cache has " + std::to_string(group.page_cache()) + " bytes");
  }
  require_right(store, elements, {});
  require(period.state_differs().empty(), "the small store is right");
}

TEST(MemoryGroup, of_a_small_part_of_the_state_is_enough) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory does not fit into the group";
  // The second asks for ten times what there is, and has files whose pages may fill the group.
  for (const char* options :
       {"\"direct\": \"auto\"", "\"direct\": false, \"host_memory_bytes\": 1000000000"}) {
    SCOPED_TRACE(options);
    MILLPOND_IN_CHILD([&] { live_in_group(96 * kMebibyte, 512 * kMebibyte, options); }, 300);
  }
}

// A mixture of experts has as many parameters as this on one rank.
TEST(ManyShards, a_hundred_thousand_are_bound_and_stepped) {
  const TemporaryDirectory scratch;
  Job job(scratch.path());
  std::vector<Parameter> many;
  const std::uint64_t count = kSanitized ? 5'000 : 100'000;
  for (std::uint64_t i = 0; i < count; ++i) {
    many.push_back({"layer." + std::to_string(i), i % 7, i % 4 == 0 ? 2u : 0u, i / 10'000});
  }
  Training training(job, "rank00000/opt0_0", many);
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_EQ(training.report.plan().shards(), count);
  training.train(1, 3);
  EXPECT_EQ(training.models_differ(), "");
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_EQ(training.report.plan().shards_kept(), count);
  training.train(4, 5);
  EXPECT_EQ(training.models_differ(), "");
}

TEST(Campaign, MemoryGroup_of_256_MiB_with_4_GiB_of_state) {
  for (const char* options : {"\"direct\": \"auto\"", "\"direct\": false"}) {
    SCOPED_TRACE(options);
    MILLPOND_IN_CHILD([&] { live_in_group(256 * kMebibyte, 4096 * kMebibyte, options); }, 3600);
  }
}

TEST(Campaign, one_shard_of_more_than_two_to_the_32_elements) {
  constexpr std::uint64_t kElements = (std::uint64_t{1} << 32) + 5'000'003;
  const TemporaryDirectory small, large;
  const std::uint64_t free = std::filesystem::space(large.path()).available;
  if (free < 30'000'000'000) GTEST_SKIP() << "30 GB of free space are needed in TMPDIR";
  // Small moments: the same bits as those of a small store with the same format.
  const std::string options = "\"moments\": \"fp8_e4m3\", \"host_memory_bytes\": ";
  Job other(small.path(), options + "4000000, \"tile_elements\": 4096");
  Job job(large.path(), options + "1073741824");
  Training period(other, "period", {{"a", kPeriod, 0, 0}});
  Status status;
  ASSERT_EQ(period.bind(&status), MILLPOND_OK) << status.text();
  RepeatedStore store(job, period, kElements);
  ASSERT_EQ(store.bind(&status), MILLPOND_OK) << status.text();
  for (std::uint64_t number = 1; number <= 2; ++number) {
    ASSERT_EQ(store.step(number, &status), MILLPOND_OK) << status.text();
    require_right(store, kElements,
                  {std::uint64_t{1} << 30, std::uint64_t{1} << 31, std::uint64_t{1} << 32});
  }
}

}  // namespace
}  // namespace millpond::tests
