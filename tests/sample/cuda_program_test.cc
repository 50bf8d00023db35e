// millpond-sample on CUDA: resident and streamed on the device in lock step, one process or several
// on one GPU or, over NCCL, on one each. Skipped in words where there is no CUDA or too few GPUs.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/sample/program_run.h"

namespace millpond::sample {
namespace {

class CudaProgram : public Program {
 protected:
  // Empty, or why this cannot run here.
  std::string missing(const std::string& device, const std::string& ranks) {
    if (run(training({"--device", device, "--ranks", ranks, "--steps", "1", "--resident",
                      "--quiet"})) == 0) {
      return {};
    }
    const std::string told = contents(log());
    for (const char* reason : {"built without CUDA", "that can be used", "built without it"}) {
      if (told.find(reason) != std::string::npos) return told;
    }
    ADD_FAILURE() << told;
    return told;
  }
  std::vector<std::string> comparing(std::vector<std::string> more) {
    more.insert(more.end(), {"--compare", "--steps", "20", "--quiet", "--tile-elements", "4096",
                             "--block-elements", "4096", "--host-memory", "256KiB"});
    return training(std::move(more));
  }
};

TEST_F(CudaProgram, resident_and_streamed_agree_on_the_device_at_every_number_of_ranks) {
  const std::string why = missing("cuda:0", "1");
  if (!why.empty()) GTEST_SKIP() << why;
  ASSERT_EQ(run(comparing({"--device", "cuda:0"})), 0) << contents(log());
  const std::string one = digest_in_log();
  EXPECT_EQ(one.size(), 32U);
  for (const char* ranks : {"2", "4"}) {
    ASSERT_EQ(run(comparing({"--device", "cuda:0", "--ranks", ranks})), 0) << contents(log());
    EXPECT_EQ(digest_in_log(), one) << ranks;
  }
  EXPECT_NE(contents(log()).find("device memory in use"), std::string::npos);
}

TEST_F(CudaProgram, ranks_over_nccl_have_the_bytes_of_one) {
  const std::string why = missing("cuda", "2");
  if (!why.empty()) GTEST_SKIP() << why;
  ASSERT_EQ(run(comparing({"--device", "cuda", "--collective", "shared"})), 0) << contents(log());
  const std::string one = digest_in_log();
  for (const char* ranks : {"1", "2"}) {
    ASSERT_EQ(run(comparing({"--device", "cuda", "--ranks", ranks, "--collective", "nccl"})), 0)
        << contents(log());
    EXPECT_EQ(digest_in_log(), one) << ranks;
  }
  EXPECT_NE(contents(log()).find("over NCCL"), std::string::npos);
}

TEST_F(CudaProgram, one_that_dies_or_stops_under_nccl_ends_the_others) {
  const std::string why = missing("cuda", "2");
  if (!why.empty()) GTEST_SKIP() << why;
  const fs::path saves = directory_.path() / "saves";
  for (const auto& [signal, words] : {std::pair{SIGKILL, "rank 1 was ended by signal 9"},
                                      std::pair{SIGSTOP, "rank 1 did not come within 3 s"}}) {
    fs::remove_all(saves);
    const pid_t family =
        start(training({"--device", "cuda", "--ranks", "2", "--steps", "1000000", "--quiet",
                        "--rank-timeout", "3", "--save", saves, "--save-every", "10"}));
    const auto begin = std::chrono::steady_clock::now();
    while (contents(log()).find("saved step 20\n") == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60))
          << contents(log());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const std::string told = contents(log()), name = "rank 1 is process ";
    kill(std::atoi(told.c_str() + told.find(name) + name.size()), signal);
    const auto stopped = std::chrono::steady_clock::now();
    const int status = wait_for(family);
    EXPECT_LT(std::chrono::steady_clock::now() - stopped, std::chrono::seconds(30));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
    EXPECT_NE(contents(log()).find(words), std::string::npos) << contents(log());
  }
}

}  // namespace
}  // namespace millpond::sample
