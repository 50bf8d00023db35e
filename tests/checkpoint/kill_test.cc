// B35: a save killed anywhere. The save is tried with a crash at every call of the file system, and
// after each crash with everything lost that was not synced, in several ways; one of them replays
// the log of writes, of which those that were not synced are dropped or reordered page by page.
//
// Seen to go red: without the bucket's sync_data, without the sync of a linked bucket, without the
// sums' sync, without the fsync of manifest and COMMIT.json, without sync_directory of the store or
// of the save id, with the older save removed before the commit.
#include <gtest/gtest.h>

#include "checkpoint/saves.h"
#include "millpond/error.hpp"
#include "tests/checkpoint/memory_file_system.h"
#include "tests/checkpoint/sample_store.h"

namespace millpond::checkpoint::testing {
namespace {

constexpr Survival kSurvivals[] = {Survival::kEverything, Survival::kSyncedOnly,
                                   Survival::kNamesOnly,  Survival::kContentsOnly,
                                   Survival::kRandom,     Survival::kSomeWrites};

std::uint64_t seeds_of(Survival survival) {
  if (survival == Survival::kSomeWrites) return 16;
  return survival == Survival::kRandom ? 4 : 1;
}

enum class Found : std::uint8_t { kNothing, kOld, kNew };

Found what_loads(MemoryFileSystem& fs, const SampleStore& older, const SampleStore& newer) {
  try {
    const SampleStore found = load(fs);
    if (same(found, older)) return Found::kOld;
    if (same(found, newer)) return Found::kNew;
    ADD_FAILURE() << "a mixture loads";
  } catch (const Error& error) {
    if (error.code() != MILLPOND_E_MISSING) ADD_FAILURE() << error.what();
  }
  return Found::kNothing;
}

// The next save works and leaves nothing of the killed one.
void expect_next_save_is_clean(MemoryFileSystem fs) {
  const SampleStore next = sample_store(3);
  const std::string id = make_save_id();
  save(fs, id, next);
  EXPECT_TRUE(same(load(fs), next));
  for (const auto& [path, bytes] : fs.files()) EXPECT_EQ(path.substr(0, 32), id) << path;
}

void kill_everywhere(bool older_is_there) {
  const SampleStore older = sample_store(1), newer = sample_store(2);
  std::uint64_t old_loads = 0, new_loads = 0, calls = 0;
  for (std::uint64_t call = 0;; ++call) {
    MemoryFileSystem fs;
    if (older_is_there) save(fs, kOldId, older);
    MemoryFileSystem base = fs.survivor(Survival::kEverything, 0);
    base.crash_at(call);
    bool committed = false, finished = false;
    try {
      save(base, kNewId, newer, &committed);
      finished = true;
    } catch (const Crash&) {
    }
    for (const Survival survival : kSurvivals) {
      for (std::uint64_t seed = 0; seed < seeds_of(survival); ++seed) {
        MemoryFileSystem left = base.survivor(survival, seed + call * 16);
        const Found found = what_loads(left, older, newer);
        SCOPED_TRACE("call " + std::to_string(call) + " survival " +
                     std::to_string(static_cast<int>(survival)));
        if (committed) {
          EXPECT_EQ(found, Found::kNew);
        }
        if (older_is_there) {
          EXPECT_NE(found, Found::kNothing);
        }
        (found == Found::kNew ? new_loads : old_loads) += 1;
        if (seed == 0) expect_next_save_is_clean(std::move(left));
      }
      if (::testing::Test::HasFailure()) FAIL();
    }
    calls = call;
    if (finished) break;
  }
  EXPECT_GT(calls, 40U);
  EXPECT_GT(old_loads, 0U);
  EXPECT_GT(new_loads, 0U);
}

TEST(Kill, B35_a_save_over_an_older_one_killed_at_every_call_leaves_one_of_them_whole) {
  kill_everywhere(true);
}

TEST(Kill, B35_a_first_save_killed_at_every_call_leaves_nothing_or_all_of_it) {
  kill_everywhere(false);
}

TEST(Kill, B15_a_save_whose_call_fails_leaves_the_older_one_and_the_next_save_works) {
  const SampleStore older = sample_store(1), newer = sample_store(2);
  for (std::uint64_t call = 0;; ++call) {
    MemoryFileSystem fs;
    save(fs, kOldId, older);
    MemoryFileSystem base = fs.survivor(Survival::kEverything, 0);
    base.before_each([&](std::uint64_t number, const std::string& what) {
      if (number == call) throw Error(MILLPOND_E_IO, what, "made to fail").os(5);
    });
    bool committed = false;
    try {
      save(base, kNewId, newer, &committed);
      break;
    } catch (const Error& error) {
      EXPECT_EQ(error.native(), 5) << error.what();
    }
    base.before_each({});
    const Found found = what_loads(base, older, newer);
    EXPECT_NE(found, Found::kNothing) << call;
    if (committed) {
      EXPECT_EQ(found, Found::kNew);
    }
    expect_next_save_is_clean(base.survivor(Survival::kSyncedOnly, 0));
  }
}

TEST(Kill, R06_the_older_save_is_gone_when_the_new_one_counts) {
  MemoryFileSystem fs;
  save(fs, kOldId, sample_store(1));
  const std::size_t files = fs.files().size();
  save(fs, kNewId, sample_store(2));
  EXPECT_EQ(fs.files().size(), files);
  for (const auto& [path, bytes] : fs.files()) EXPECT_EQ(path.substr(0, 32), kNewId) << path;
}

TEST(Kill, what_is_not_a_save_in_the_directory_is_left_alone) {
  MemoryFileSystem fs;
  for (const char* path : {"notes", "0123456789ABCDEF0123456789ABCDEF", "rank00000/opt0_0"}) {
    fs.make_directories(path);
    fs.create(std::string(path) + "/file", 3);
  }
  save(fs, kOldId, sample_store(1));
  save(fs, kNewId, sample_store(2));
  const auto files = fs.files();
  EXPECT_TRUE(files.contains("notes/file"));
  EXPECT_TRUE(files.contains("0123456789ABCDEF0123456789ABCDEF/file"));
  EXPECT_TRUE(files.contains("rank00000/opt0_0/file"));
}

}  // namespace
}  // namespace millpond::checkpoint::testing
