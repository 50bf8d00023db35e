// Saves that are cut short: cancelled, killed, by one store of several or one node of several. What
// loads afterwards is the older save or the new one, whole.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "tests/checkpoint/saved_training.h"

namespace millpond::tests {
namespace {

class Cut : public ::testing::Test {
 protected:
  std::string path() const { return saved_.path(); }
  std::string begin(Job& job) {
    millpond_save_id id{};
    EXPECT_EQ(checkpoints().save_begin(job.runtime, kAlone, str(path()), &id, &status_),
              MILLPOND_OK)
        << status_.text();
    return id.text;
  }

  TemporaryDirectory scratch_, saved_;
  Status status_;
};

TEST_F(Cut, a_host_may_choose_the_save_id) {
  Job job(scratch_.path(), kSmallTiles);
  Training training(job, "s", usual_parameters());
  ASSERT_EQ(training.bind(&status_), MILLPOND_OK);
  const std::string chosen = "00112233445566778899aabbccddeeff";
  const auto begin_with = [&](const std::string& text) {
    millpond_save_id id{};
    text.copy(id.text, sizeof id.text);
    const std::int32_t code =
        checkpoints().save_begin(job.runtime, kAlone, str(path()), &id, &status_);
    if (code == MILLPOND_OK) {
      EXPECT_EQ(std::string(id.text), chosen);
    }
    return code;
  };
  EXPECT_EQ(begin_with("00112233445566778899AABBCCDDEEFF"), MILLPOND_E_ARGUMENT);
  EXPECT_EQ(begin_with("0011"), MILLPOND_E_ARGUMENT);
  EXPECT_EQ(begin_with(std::string(40, 'a')), MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status_.field, "save_id");
  ASSERT_EQ(begin_with(chosen), MILLPOND_OK) << status_.text();
  ASSERT_EQ(save(training, path(), &status_, 0, chosen), MILLPOND_OK) << status_.text();
  ASSERT_EQ(checkpoints().save_commit(job.runtime, kAlone, str(chosen), &status_), MILLPOND_OK);
  EXPECT_EQ(only_save(path()).filename(), chosen);
  EXPECT_EQ(begin_with(chosen), MILLPOND_E_ARGUMENT) << "it is committed there already";
}

TEST_F(Cut, R06_a_save_over_an_older_one_leaves_only_itself) {
  Job job(scratch_.path(), kSmallTiles);
  Training training(job, "s", usual_parameters());
  ASSERT_EQ(training.bind(&status_), MILLPOND_OK);
  std::filesystem::path before;
  for (std::uint64_t number = 1; number <= 4; ++number) {
    training.train(number);
    ASSERT_EQ(save(training, path(), &status_), MILLPOND_OK) << status_.text();
    const std::filesystem::path now = only_save(path());
    EXPECT_FALSE(now.empty());
    EXPECT_NE(now, before);
    before = now;
  }
  // Fewer and larger buckets, an older save with more of them.
  Job other(scratch_.path(), "\"tile_elements\": 65536");
  Training larger(other, "s", usual_parameters(), 2);
  ASSERT_EQ(larger.bind(&status_), MILLPOND_OK);
  ASSERT_EQ(save(larger, path(), &status_), MILLPOND_OK);
  std::size_t bins = 0;
  for (const auto& entry : std::filesystem::directory_iterator(only_save(path()) / "s")) {
    bins += entry.path().extension() == ".bin" ? 1 : 0;
  }
  EXPECT_EQ(bins, 3U);
}

TEST_F(Cut, a_cancelled_save_leaves_the_older_one_and_no_leftovers) {
  Job job(scratch_.path(), kSmallTiles);
  Training training(job, "s", usual_parameters());
  ASSERT_EQ(training.bind(&status_), MILLPOND_OK);
  training.train(1, 2);
  ASSERT_EQ(save(training, path(), &status_), MILLPOND_OK);
  const std::filesystem::path older = only_save(path());
  const std::vector<PlainParameter> saved = training.plain;
  training.train(3);
  // Before it begins; store_background_test.cc cancels later on.
  job.cancel = true;
  EXPECT_EQ(save(training, path(), &status_), MILLPOND_E_CANCELLED) << status_.text();
  EXPECT_EQ(only_save(path()), older);
  job.in_progress = {};
  job.cancel = false;
  EXPECT_EQ(training.state_differs(), "");
  training.train(4);
  ASSERT_EQ(load(training, path(), &status_), MILLPOND_OK) << status_.text();
  take_over(training, saved);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

// B35 with a real SIGKILL: a child trains and saves in a loop and is killed a moment after a save
// began. Whatever loads is a state that it had when it saved: the parent makes the same steps.
TEST_F(Cut, B35_a_process_killed_in_a_save_leaves_one_save_whole) {
  constexpr std::uint64_t kSteps = 40;
  const std::vector<Parameter> parameters = usual_parameters();
  std::vector<std::vector<PlainParameter>> after(kSteps + 1);
  {
    // The oracle alone, without a store that steps.
    Job job(scratch_.path(), kSmallTiles);
    Training oracle(job, "s", parameters);
    after[0] = oracle.plain;
    for (std::uint64_t number = 1; number <= kSteps; ++number) {
      oracle.resident_step(oracle.make_step(number));
      after[number] = oracle.plain;
    }
  }
  std::mt19937_64 random(11);
  std::uint64_t killed = 0;
  for (int round = 0; round < 12; ++round) {
    std::filesystem::remove_all(path());
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      Job job(scratch_.path(), kSmallTiles);
      Training training(job, "s", parameters);
      Status status;
      if (training.bind(&status) != MILLPOND_OK) _exit(1);
      for (std::uint64_t number = 1; number <= kSteps; ++number) {
        training.train(number);
        if (write(pipe_ends[1], &number, sizeof number) < 0) _exit(1);
        if (save(training, path(), &status) != MILLPOND_OK) _exit(2);
      }
      _exit(0);
    }
    close(pipe_ends[1]);
    std::uint64_t begun = 0;
    const std::uint64_t wait_for = 3 + random() % 4;
    while (begun < wait_for && read(pipe_ends[0], &begun, sizeof begun) > 0) {
    }
    usleep(static_cast<useconds_t>(random() % 8'000));
    kill(child, SIGKILL);
    while (read(pipe_ends[0], &begun, sizeof begun) > 0) {
    }
    close(pipe_ends[0]);
    int how = 0;
    ASSERT_EQ(waitpid(child, &how, 0), child);
    if (WIFSIGNALED(how)) ++killed;
    if (WIFEXITED(how)) {
      ASSERT_EQ(WEXITSTATUS(how), 0);
    }

    Job job(scratch_.path(), kSmallTiles);
    Training survivor(job, "s", parameters, 5);
    ASSERT_EQ(survivor.bind(&status_), MILLPOND_OK) << status_.text();
    ASSERT_EQ(load(survivor, path(), &status_), MILLPOND_OK) << round << status_.text();
    // The last save that was begun, or the one before.
    survivor.plain = after[begun];
    const std::string with_last = survivor.state_differs();
    survivor.plain = after[begun - 1];
    EXPECT_TRUE(with_last.empty() || survivor.state_differs().empty())
        << "round " << round << ": " << with_last;
    ASSERT_EQ(save(survivor, path(), &status_), MILLPOND_OK) << status_.text();
    EXPECT_FALSE(only_save(path()).empty()) << "leftovers";
  }
  EXPECT_GE(killed, 6U);
}

TEST_F(Cut, several_stores_count_together_or_not_at_all) {
  Job job(scratch_.path(), kSmallTiles);
  Training dense(job, "rank00000/opt0_0", usual_parameters());
  Training expert(job, "rank00000/opt0_1", {{"expert", 9'000, 0, 0}}, 2);
  ASSERT_EQ(dense.bind(&status_), MILLPOND_OK);
  ASSERT_EQ(expert.bind(&status_), MILLPOND_OK);
  const auto train = [&](std::uint64_t number) {
    dense.train(number);
    expert.train(number);
  };
  train(1);
  EXPECT_EQ(save(dense, path(), &status_), MILLPOND_E_STATE) << "COMMIT with two stores";
  std::string id = begin(job);
  ASSERT_EQ(save(dense, path(), &status_, 0, id), MILLPOND_OK) << status_.text();
  EXPECT_EQ(save(expert, path() + "/elsewhere", &status_, 0, id), MILLPOND_E_STATE);
  ASSERT_EQ(save(expert, path(), &status_, 0, id), MILLPOND_OK) << status_.text();
  ASSERT_EQ(checkpoints().save_commit(job.runtime, kAlone, str(id), &status_), MILLPOND_OK)
      << status_.text();
  const Everything dense_saved = everything(dense), expert_saved = everything(expert);
  train(2);

  // One of two was not saved: nothing counts.
  id = begin(job);
  ASSERT_EQ(save(dense, path(), &status_, 0, id), MILLPOND_OK) << status_.text();
  EXPECT_EQ(checkpoints().save_commit(job.runtime, kAlone, str(id), &status_), MILLPOND_E_STATE);
  EXPECT_NE(std::string(status_.message).find("opt0_1"), std::string::npos) << status_.message;
  EXPECT_FALSE(only_save(path()).empty());

  // One of two is damaged: neither is loaded.
  const Everything dense_live = everything(dense), expert_live = everything(expert);
  const std::filesystem::path file = only_save(path()) / "rank00000/opt0_1/bucket00000.bin";
  const std::string good = file_bytes(file);
  std::string bad = good;
  bad[100] = static_cast<char>(bad[100] ^ 1);
  write_file(file, bad);
  EXPECT_EQ(load(dense, path(), &status_, MILLPOND_IO_STAGE), MILLPOND_OK) << status_.text();
  EXPECT_EQ(load(expert, path(), &status_, MILLPOND_IO_STAGE), MILLPOND_E_CORRUPT);
  EXPECT_EQ(checkpoints().load_commit(job.runtime, kAlone, &status_), MILLPOND_E_CORRUPT);
  EXPECT_EQ(everything(dense), dense_live);
  EXPECT_EQ(everything(expert), expert_live);
  train(3);
  EXPECT_EQ(dense.models_differ() + expert.models_differ(), "");

  write_file(file, good);
  EXPECT_EQ(load(dense, path(), &status_, MILLPOND_IO_STAGE), MILLPOND_OK) << status_.text();
  EXPECT_EQ(checkpoints().load_commit(job.runtime, kAlone, &status_), MILLPOND_E_STATE)
      << "one of two was not loaded";
  EXPECT_EQ(load(dense, path(), &status_, MILLPOND_IO_STAGE), MILLPOND_OK) << status_.text();
  EXPECT_EQ(load(expert, path(), &status_, MILLPOND_IO_STAGE), MILLPOND_OK) << status_.text();
  ASSERT_EQ(checkpoints().load_commit(job.runtime, kAlone, &status_), MILLPOND_OK)
      << status_.text();
  EXPECT_EQ(everything(dense).counters, dense_saved.counters);
  EXPECT_EQ(everything(expert), expert_saved);
}

TEST_F(Cut, a_save_that_was_begun_and_given_up_does_not_stand_in_the_way) {
  Job job(scratch_.path(), kSmallTiles);
  Training training(job, "s", usual_parameters());
  ASSERT_EQ(training.bind(&status_), MILLPOND_OK);
  training.train(1);
  const std::string given_up = begin(job);
  ASSERT_EQ(save(training, path(), &status_, 0, given_up), MILLPOND_OK) << status_.text();
  ASSERT_EQ(save(training, path(), &status_), MILLPOND_OK) << status_.text();
  EXPECT_NE(only_save(path()).filename().string(), given_up);
  EXPECT_EQ(checkpoints().save_commit(job.runtime, kAlone, str(given_up), &status_),
            MILLPOND_E_STATE);
  ASSERT_EQ(load(training, path(), &status_), MILLPOND_OK) << status_.text();
}

}  // namespace
}  // namespace millpond::tests
