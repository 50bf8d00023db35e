// millpond-sample --ranks N as a program: the same bytes for every N, and what becomes of a run one
// of whose processes dies, stops, or is killed while it saves.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/sample/program_run.h"

namespace millpond::sample {
namespace {

using Clock = std::chrono::steady_clock;

class RanksProgram : public Program {
 protected:
  std::vector<std::string> ranks(const std::string& count, std::vector<std::string> more) {
    more.insert(more.begin(), {"--ranks", count, "--micro-batches", "12", "--threads", "1",
                               "--tile-elements", "4096", "--block-elements", "4096", "--quiet"});
    return training(more);
  }
  // False after a minute.
  bool wait_until_told(const std::string& words) {
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    while (contents(log()).find(words) == std::string::npos) {
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  pid_t process_of(const std::string& rank) {
    const std::string told = contents(log()), words = "rank " + rank + " is process ";
    const std::size_t at = told.find(words);
    return at == std::string::npos ? -1 : std::atoi(told.c_str() + at + words.size());
  }
  std::string newest_commit() {
    for (const auto& entry : fs::recursive_directory_iterator(saves())) {
      if (entry.path().filename() == "COMMIT.json") return contents(entry.path());
    }
    return {};
  }
  fs::path saves() const { return directory_.path() / "saves"; }
};

TEST_F(RanksProgram, every_number_of_ranks_gives_the_same_bytes_and_compare_agrees) {
  std::vector<std::string> digests;
  for (const char* count : {"1", "3", "6"}) {
    ASSERT_EQ(run(ranks(count, {"--compare", "--steps", "5"})), 0) << contents(log());
    digests.push_back(digest_in_log());
    EXPECT_EQ(digests.back().size(), 32U);
    EXPECT_EQ(digests.back(), digests.front()) << count;
  }
  const std::string table = contents(log());
  for (const char* word : {"6 ranks over shared memory", "together:", "slowest: rank"}) {
    EXPECT_NE(table.find(word), std::string::npos) << word << "\n" << table;
  }
  ASSERT_EQ(run(ranks("1", {"--streamed", "--steps", "5", "--seed", "2"})), 0);
  EXPECT_NE(digest_in_log(), digests.front());
}

// The embedding has 4096 elements, one slice: rank 0 has a store for it, the others have none.
TEST_F(RanksProgram, B25_one_rank_killed_ends_all_and_the_save_resumes_to_the_same_bytes) {
  const std::vector<std::string> steps = {"--steps", "40"};
  ASSERT_EQ(run(ranks("3", steps)), 0) << contents(log());
  const std::string uninterrupted = digest_in_log();
  ASSERT_EQ(uninterrupted.size(), 32U);

  std::vector<std::string> saving = steps;
  saving.insert(saving.end(), {"--save", saves(), "--save-every", "3"});
  const pid_t family = start(ranks("3", saving));
  ASSERT_TRUE(wait_until_told("saved step 9\n")) << contents(log());
  const pid_t victim = process_of("1");
  ASSERT_GT(victim, 0) << contents(log());
  kill(victim, SIGKILL);
  const auto killed = Clock::now();
  const int status = wait_for(family);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_LT(Clock::now() - killed, std::chrono::seconds(20));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  const std::string told = contents(log());
  EXPECT_NE(told.find("rank 1 was ended by signal 9"), std::string::npos) << told;
  EXPECT_NE(told.find("rank 0: millpond-sample: "), std::string::npos) << told;

  const std::string commit = newest_commit();
  for (const char* store :
       {"rank00000/opt0_0", "rank00001/opt0_0", "rank00002/opt0_0", "rank00000/opt0_1"}) {
    EXPECT_NE(commit.find(store), std::string::npos) << store << "\n" << commit;
  }
  EXPECT_EQ(commit.find("rank00001/opt0_1"), std::string::npos) << commit;

  std::vector<std::string> resuming = steps;
  resuming.insert(resuming.end(), {"--resume", saves()});
  ASSERT_EQ(run(ranks("3", resuming)), 0) << contents(log());
  EXPECT_NE(contents(log()).find("resumed after step"), std::string::npos);
  EXPECT_EQ(digest_in_log(), uninterrupted);
}

// The number of ranks changes from run to run, and the learning rates are those of 12 steps.
class Resharding : public RanksProgram {
 protected:
  std::vector<std::string> on(const char* count, std::vector<std::string> more) {
    more.insert(more.begin(), {"--ranks", count, "--threads", "1", "--tile-elements", "4096",
                               "--block-elements", "4096", "--quiet"});
    return training(more);
  }
  std::string uninterrupted(const char* count) {
    EXPECT_EQ(run(on(count, {"--steps", "12"})), 0) << contents(log());
    return digest_in_log();
  }
};

TEST_F(Resharding, any_number_of_ranks_resumes_what_two_have_saved) {
  const std::string wanted = uninterrupted("2");
  ASSERT_EQ(run(on("2", {"--steps", "12", "--save", saves(), "--stop-after", "7"})), 0)
      << contents(log());
  EXPECT_NE(digest_in_log(), wanted);
  for (const char* count : {"1", "2", "4"}) {
    ASSERT_EQ(run(on(count, {"--steps", "12", "--resume", saves()})), 0) << contents(log());
    EXPECT_NE(contents(log()).find("resumed after step 7\n"), std::string::npos);
    EXPECT_EQ(digest_in_log(), wanted) << count;
  }
}

TEST_F(Resharding, four_two_four_have_the_bytes_of_four) {
  const std::string wanted = uninterrupted("4");
  ASSERT_EQ(run(on("4", {"--steps", "12", "--save", saves(), "--stop-after", "4"})), 0)
      << contents(log());
  ASSERT_EQ(
      run(on("2", {"--steps", "12", "--save", saves(), "--stop-after", "8", "--resume", saves()})),
      0)
      << contents(log());
  ASSERT_EQ(run(on("4", {"--steps", "12", "--resume", saves()})), 0) << contents(log());
  EXPECT_NE(contents(log()).find("resumed after step 8\n"), std::string::npos);
  EXPECT_EQ(digest_in_log(), wanted);
}

// Wherever the kill strikes from the beginning of the load on.
TEST_F(Resharding, B25_one_killed_while_all_load_ends_them_and_harms_no_save) {
  const std::string wanted = uninterrupted("4");
  ASSERT_EQ(run(on("2", {"--steps", "12", "--save", saves(), "--stop-after", "7"})), 0)
      << contents(log());
  const pid_t family = start(on("4", {"--steps", "1000000", "--resume", saves()}));
  ASSERT_TRUE(wait_until_told("loading ")) << contents(log());
  const pid_t victim = process_of("1");
  ASSERT_GT(victim, 0) << contents(log());
  kill(victim, SIGKILL);
  const auto killed = Clock::now();
  const int status = wait_for(family);
  EXPECT_LT(Clock::now() - killed, std::chrono::seconds(20));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  const std::string told = contents(log());
  EXPECT_NE(told.find("rank 1 was ended by signal 9"), std::string::npos) << told;
  EXPECT_NE(told.find("rank 0: millpond-sample: "), std::string::npos) << told;
  ASSERT_EQ(run(on("4", {"--steps", "12", "--resume", saves()})), 0) << contents(log());
  EXPECT_EQ(digest_in_log(), wanted);
}

TEST_F(RanksProgram, one_that_stops_ends_the_others_after_the_timeout) {
  const pid_t family = start(ranks(
      "3", {"--steps", "100000", "--rank-timeout", "1", "--save", saves(), "--save-every", "2"}));
  ASSERT_TRUE(wait_until_told("saved step 2\n")) << contents(log());
  const pid_t victim = process_of("2");
  ASSERT_GT(victim, 0) << contents(log());
  kill(victim, SIGSTOP);
  const auto stopped = Clock::now();
  const int status = wait_for(family);
  EXPECT_LT(Clock::now() - stopped, std::chrono::seconds(20));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_NE(contents(log()).find("rank 2 did not come within 1 s"), std::string::npos)
      << contents(log());
  EXPECT_NE(kill(victim, 0), 0) << "the stopped rank is still there";
}

TEST_F(RanksProgram, ranks_do_not_outlive_the_program_that_started_them) {
  const pid_t family =
      start(ranks("3", {"--steps", "100000", "--save", saves(), "--save-every", "2"}));
  ASSERT_TRUE(wait_until_told("saved step 2\n")) << contents(log());
  const pid_t rank = process_of("0");
  kill(family, SIGKILL);
  wait_for(family);
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (kill(rank, 0) == 0) {
    // Where nobody reaps orphans, the dead rank stays as a zombie.
    std::ifstream stat("/proc/" + std::to_string(rank) + "/stat");
    std::string pid, name, state;
    if (stat >> pid >> name >> state && state == "Z") break;
    ASSERT_LT(Clock::now(), deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace
}  // namespace millpond::sample
