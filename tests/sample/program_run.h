// Runs millpond-sample as a program.
#ifndef MILLPOND_TESTS_SAMPLE_PROGRAM_RUN_H_
#define MILLPOND_TESTS_SAMPLE_PROGRAM_RUN_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/sample/sample_text.h"

extern char** environ;

namespace millpond::sample {
namespace fs = std::filesystem;

inline std::string contents(const fs::path& path) {
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

}  // namespace millpond::sample

#endif  // MILLPOND_TESTS_SAMPLE_PROGRAM_RUN_H_
