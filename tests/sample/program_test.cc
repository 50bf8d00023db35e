// millpond-sample as a program: its exit codes, what it says, and SIGKILL in the middle of a run.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/sample/sample_text.h"

extern char** environ;

namespace millpond::sample {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Program : public testing::Test {
 protected:
  // Starts the program; what it prints goes to log().
  pid_t start(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), MILLPOND_TEST_SAMPLE);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log().c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, MILLPOND_TEST_SAMPLE, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }
  int wait_for(pid_t pid) {
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return status;
  }
  // The exit code.
  int run(std::vector<std::string> arguments) {
    const int status = wait_for(start(std::move(arguments)));
    EXPECT_TRUE(WIFEXITED(status)) << contents(log());
    return WEXITSTATUS(status);
  }
  std::vector<std::string> training(std::vector<std::string> more) {
    std::vector<std::string> all = {"--text",
                                    directory_.text(),
                                    "--scratch",
                                    directory_.scratch(),
                                    "--plugin",
                                    MILLPOND_TEST_PLUGIN,
                                    "--hidden",
                                    "64",
                                    "--embedding",
                                    "16",
                                    "--context",
                                    "4",
                                    "--batch",
                                    "32",
                                    "--evaluation-bytes",
                                    "512",
                                    "--evaluations",
                                    "1",
                                    "--warmup",
                                    "4"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string digest_in_log() {
    const std::string text = contents(log());
    const std::size_t at = text.find("XXH3-128 ");
    return at == std::string::npos ? "" : text.substr(at + 9, 32);
  }
  fs::path log() const { return directory_.path() / "log"; }

  TestDirectory directory_;
};

TEST_F(Program, help_names_every_option_and_gives_examples) {
  EXPECT_EQ(run({"--help"}), 0);
  const std::string text = contents(log());
  for (const char* word :
       {"--plugin",   "--text",      "--steps",         "--hidden",      "--layers",
        "--context",  "--batch",     "--scratch",       "--moments",     "--resident",
        "--streamed", "--compare",   "--save",          "--save-every",  "--resume",
        "--seed",     "--threads",   "--tile-elements", "--host-memory", "--json",
        "Examples:",  "Exit codes:", "XXH3-128"}) {
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
  EXPECT_EQ(run(training({"--option", "direct"})), 2);
}

TEST_F(Program, failures_end_with_1_and_say_why) {
  EXPECT_EQ(run({"--text", directory_.text(), "--scratch", directory_.scratch(), "--plugin",
                 "/nowhere.so"}),
            1);
  EXPECT_NE(contents(log()).find("/nowhere.so"), std::string::npos);
  EXPECT_EQ(run(training({"--option", "tile_element=4096"})), 1);
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

}  // namespace
}  // namespace millpond::sample
