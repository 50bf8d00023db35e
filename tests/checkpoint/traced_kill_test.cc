// B35: SIGKILL at system calls of a save over a good checkpoint, of all threads of the process, by
// ptrace. What loads afterwards is the old save or the new one, whole.
//
// 200 calls, spread over all; in the campaign every one. A killed process loses nothing that it has
// handed to the kernel, so the drive adds nothing but the time of its syncs: outside the campaign
// the files are in memory, where the machine has such a filesystem.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/checkpoint/in_memory.h"
#include "tests/checkpoint/traced_save.h"
#include "tests/store/campaign.h"

namespace millpond::tests {
namespace {

constexpr std::uint64_t kKillCases = 200;

TEST(TracedKill, B35_at_system_calls_of_a_save_leaves_the_old_save_or_the_new_one) {
  std::optional<InMemory> memory;
  if (!in_campaign()) memory.emplace();
  TemporaryDirectory scratch;
  Status status;
  const Everything older = state_after(scratch.path(), kOldSteps);
  const Everything newer = state_after(scratch.path(), kNewSteps);
  TemporaryDirectory counted;
  const TracedSave whole = run_traced_save(scratch.path(), counted.path(), UINT64_MAX);
  if (!whole.traced) GTEST_SKIP() << "ptrace is not allowed here";
  ASSERT_GT(whole.calls, 100U);
  const std::vector<std::uint64_t> calls = some_of(whole.calls, kKillCases);
  std::uint64_t old_loads = 0, new_loads = 0, killed = 0;
  for (const std::uint64_t call : calls) {
    SCOPED_TRACE("killed at call " + std::to_string(call) + " of " + std::to_string(whole.calls));
    TemporaryDirectory path;
    killed += run_traced_save(scratch.path(), path.path(), call).interrupted ? 1 : 0;
    Job job(scratch.path(), kTracedOptions);
    Training survivor(job, "s", usual_parameters(), 9);
    ASSERT_EQ(survivor.bind(&status), MILLPOND_OK) << status.text();
    ASSERT_EQ(load(survivor, path.path(), &status), MILLPOND_OK) << status.text();
    const Everything found = everything(survivor);
    const auto is = [&](const Everything& one) {
      return found.segments == one.segments && found.counters == one.counters;
    };
    ASSERT_TRUE(is(older) || is(newer)) << "a mixture";
    (is(older) ? old_loads : new_loads) += 1;
    // The next save works and leaves only itself; of the dead one's scratch nothing is left.
    ASSERT_EQ(save(survivor, path.path(), &status), MILLPOND_OK) << status.text();
    ASSERT_FALSE(only_save(path.path()).empty()) << "leftovers";
  }
  EXPECT_GE(killed, calls.size() * 9 / 10) << "calls differ from run to run, but not so much";
  EXPECT_GT(old_loads, 0U);
  EXPECT_GT(new_loads, 0U);
  std::printf(
      "%zu of %llu system calls: the old save %llu times, the new one %llu times, "
      "mixtures wanted 0, got 0\n",
      calls.size(), static_cast<unsigned long long>(whole.calls),
      static_cast<unsigned long long>(old_loads), static_cast<unsigned long long>(new_loads));
}

}  // namespace
}  // namespace millpond::tests
