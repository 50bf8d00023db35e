// millpond-sample as a program: its exit codes, what it says, and SIGKILL in the middle of a run.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/sample/program_run.h"

namespace millpond::sample {
namespace {

TEST_F(Program, help_names_every_option_and_gives_examples) {
  EXPECT_EQ(run({"--help"}), 0);
  const std::string text = contents(log());
  for (const char* word :
       {"--plugin",        "--text",          "--steps",        "--hidden",     "--layers",
        "--context",       "--batch",         "--scratch",      "--moments",    "--resident",
        "--streamed",      "--compare",       "--save",         "--save-every", "--resume",
        "--ranks",         "--micro-batches", "--rank-timeout", "--seed",       "--threads",
        "--tile-elements", "--host-memory",   "--json",         "Examples:",    "Exit codes:",
        "XXH3-128"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word;
  }
}

TEST_F(Program, wrong_command_lines_end_with_2) {
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"--text", directory_.text()}), 2);  // streamed without --scratch
  EXPECT_EQ(run(training({"--layers", "1"})), 2);
  EXPECT_EQ(run(training({"--moments", "fp7"})), 2);
  EXPECT_EQ(run(training({"--compare", "--moments", "bf16"})), 2);
  EXPECT_EQ(run(training({"--no-such-option"})), 2);
  EXPECT_EQ(run(training({"--resident", "--compare"})), 2);
  EXPECT_NE(contents(log()).find("--resident"), std::string::npos) << contents(log());
  EXPECT_EQ(run(training({"--steps", "0"})), 2);
  EXPECT_EQ(run(training({"--tier", "8Gx"})), 2);
  EXPECT_EQ(run(training({"--ranks", "3"})), 2);  // of the default 4 micro-batches
  EXPECT_NE(contents(log()).find("3, 6, 12"), std::string::npos) << contents(log());
  EXPECT_EQ(run(training({"--ranks", "2", "--formats"})), 2);
  EXPECT_EQ(run(training({"--micro-batches", "64"})), 2);  // more than the batch of 32
  EXPECT_EQ(run(training({"--option", "direct"})), 2);
}

TEST_F(Program, failures_end_with_1_and_say_why) {
  EXPECT_EQ(run({"--text", directory_.text(), "--scratch", directory_.scratch(), "--plugin",
                 "/nowhere.so"}),
            1);
  EXPECT_NE(contents(log()).find("/nowhere.so"), std::string::npos);
  EXPECT_EQ(run(training({"--option", "tile_element=4096"})), 2);
  EXPECT_NE(contents(log()).find("tile_elements"), std::string::npos) << contents(log());
}

TEST_F(Program, compare_ends_with_a_table_and_figures_for_programs) {
  const fs::path json = directory_.path() / "figures.json";
  ASSERT_EQ(run(training({"--compare", "--steps", "6", "--quiet", "--json", json})), 0)
      << contents(log());
  const std::string table = contents(log());
  for (const char* word : {"resident", "streamed", "bits per byte at step 6", "ms a step",
                           "optimizer state in memory", "bigram", "agree in every byte"}) {
    EXPECT_NE(table.find(word), std::string::npos) << word << "\n" << table;
  }
  const std::string document = contents(json);
  for (const char* key :
       {"\"bits_per_byte\"", "\"bigram_bits_per_byte\"", "\"digest\"", "\"resident_bytes\"",
        "\"first_step_bytes_read\"", "\"last_step_bytes_written\"", "\"step_seconds\""}) {
    EXPECT_NE(document.find(key), std::string::npos) << key;
  }
}

TEST_F(Program, B25_killed_in_the_middle_it_resumes_to_the_same_bytes) {
  const std::vector<std::string> steps = {
      "--steps", "40", "--quiet", "--tile-elements", "4096", "--block-elements", "4096"};
  ASSERT_EQ(run(training(steps)), 0) << contents(log());
  const std::string uninterrupted = digest_in_log();
  ASSERT_EQ(uninterrupted.size(), 32U);

  const fs::path saves = directory_.path() / "saves";
  std::vector<std::string> saving = steps;
  saving.insert(saving.end(), {"--save", saves, "--save-every", "3"});
  const pid_t pid = start(training(saving));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (contents(log()).find("saved step 9\n") == std::string::npos) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << contents(log());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(pid, SIGKILL);
  const int status = wait_for(pid);
  if (WIFEXITED(status)) GTEST_SKIP() << "the run ended before it could be killed";
  EXPECT_EQ(WTERMSIG(status), SIGKILL);

  std::vector<std::string> resuming = steps;
  resuming.insert(resuming.end(), {"--resume", saves});
  ASSERT_EQ(run(training(resuming)), 0) << contents(log());
  EXPECT_NE(contents(log()).find("resumed after step"), std::string::npos);
  EXPECT_EQ(digest_in_log(), uninterrupted);
}

TEST_F(Program, saves_of_two_runs_never_meet_in_one_directory) {
  const fs::path saves = directory_.path() / "saves";
  const std::vector<std::string> first = {"--steps", "6", "--quiet", "--save", saves};
  ASSERT_EQ(run(training(first)), 0) << contents(log());
  const std::string finished = digest_in_log();
  EXPECT_EQ(run(training({"--steps", "6", "--lr", "1e-3", "--quiet", "--save", saves})), 1);
  for (const char* words : {"step_00000006", "--resume", "another run"}) {
    EXPECT_NE(contents(log()).find(words), std::string::npos) << contents(log());
  }
  EXPECT_EQ(run(training({"--steps", "6", "--lr", "1e-3", "--quiet", "--resume", saves})), 1);
  EXPECT_NE(contents(log()).find("--new-hyperparameters"), std::string::npos) << contents(log());
  EXPECT_EQ(run(training({"--steps", "6", "--quiet", "--resume", saves / "step_00000006"})), 1);
  EXPECT_NE(contents(log()).find("name the directory above"), std::string::npos) << contents(log());

  std::vector<std::string> again = first;
  again.insert(again.end(), {"--resume", saves / "."});
  ASSERT_EQ(run(training(again)), 0) << contents(log());
  EXPECT_NE(contents(log()).find("nothing left to do"), std::string::npos) << contents(log());
  EXPECT_EQ(digest_in_log(), finished);
}

TEST_F(Program, says_when_nothing_was_streamed_and_what_would_stream) {
  ASSERT_EQ(run(training({"--steps", "2", "--quiet", "--json", "-"})), 0) << contents(log());
  const std::string told = contents(log()), words = "it would be with ";
  EXPECT_NE(told.find("\n  \"digest\": "), std::string::npos) << told;
  ASSERT_NE(told.find("nothing was streamed; " + words), std::string::npos) << told;
  const std::string advice = told.substr(told.find(words) + words.size());
  const std::size_t tile = advice.find(" --tile ");
  ASSERT_EQ(advice.rfind("--tier ", 0), 0U) << advice;
  ASSERT_EQ(run(training({"--steps", "2", "--quiet", "--tier", advice.substr(7, tile - 7), "--tile",
                          advice.substr(tile + 8, advice.find('\n') - tile - 8)})),
            0)
      << contents(log());
  EXPECT_EQ(contents(log()).find("nothing was streamed"), std::string::npos) << contents(log());
}

TEST_F(Program, directories_that_cannot_be_used_are_named_before_the_first_step) {
  EXPECT_EQ(run(training({"--steps", "2", "--scratch", directory_.path() / "unmounted"})), 1);
  EXPECT_NE(contents(log()).find("unmounted"), std::string::npos) << contents(log());
  EXPECT_FALSE(fs::exists(directory_.path() / "unmounted"));
  EXPECT_EQ(run(training({"--steps", "1000000", "--json", directory_.path() / "no" / "file"})), 1);
  EXPECT_NE(contents(log()).find("--json"), std::string::npos) << contents(log());
  EXPECT_EQ(run(training({"--steps", "1000000", "--json", directory_.path()})), 1);
  EXPECT_EQ(run(training({"--steps", "2", "--save", directory_.text() / "saves"})), 1);
  EXPECT_NE(contents(log()).find("errno"), std::string::npos) << contents(log());
}

}  // namespace
}  // namespace millpond::sample
