// A drive that does not answer: a frozen ext4 holds every write until it is thawed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>

#include "tests/io/sandbox.h"
#include "tests/store/training.h"

namespace millpond::tests {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void hang(const std::string& directory, const std::string& engine) {
  sandbox::mount_loop("ext4", directory, 64);
  const int frozen = open(directory.c_str(), O_RDONLY | O_DIRECTORY);
  sandbox::require(frozen >= 0, "open");
  Job job(directory,
          "\"tile_elements\": 4096, \"host_memory_bytes\": 250000, "
          "\"io_timeout_s\": 2, \"io_engine\": \"" +
              engine + "\"");
  Training training(job, "s", {{"a", 100000, 0, 0}});
  Status status;
  sandbox::require(training.bind(&status) == MILLPOND_OK, status.text());
  training.train(1, 2);
  if (ioctl(frozen, FIFREEZE, 0) != 0) sandbox::skip("FIFREEZE is not allowed here");
  auto begin = std::chrono::steady_clock::now();
  const std::int32_t stepped = training.step(training.make_step(3), &status);
  const double step_seconds = seconds_since(begin);
  const std::string step_text = status.text();
  const std::uint32_t flags = status.flags;
  begin = std::chrono::steady_clock::now();
  const std::int32_t destroyed = job.destroy(&status);
  const double destroy_seconds = seconds_since(begin);
  training.store = nullptr;
  const bool thawed = ioctl(frozen, FITHAW, 0) == 0;
  close(frozen);
  sandbox::require(thawed, "FITHAW");
  sandbox::require(stepped == MILLPOND_E_TIMEOUT, "the step: " + step_text);
  sandbox::require((flags & MILLPOND_STATUS_POISONED) != 0, "poisoned");
  sandbox::require(step_seconds < 30, "the step took " + std::to_string(step_seconds) + " s");
  sandbox::require(destroyed == MILLPOND_E_LEAKED, "destroy: " + status.text());
  sandbox::require(status.got > 0, "bytes that leaked");
  sandbox::require(destroy_seconds < 30, "destroy took " + std::to_string(destroy_seconds) + " s");
}

TEST(Hang, a_drive_that_does_not_answer_fails_the_step_and_destroy_returns) {
  for (const char* engine : {"auto", "threads"}) {
    SCOPED_TRACE(engine);
    TemporaryDirectory directory;
    MILLPOND_IN_CHILD([&] { hang(directory.path() + "/drive", engine); });
  }
}

}  // namespace
}  // namespace millpond::tests
