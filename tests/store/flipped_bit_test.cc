// A drive that gives back other bytes than it was given.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/io/sandbox.h"
#include "tests/store/required.h"
#include "tests/store/training.h"

namespace millpond::tests {
namespace {

using sandbox::require;

// Of a scratch file, which has no name: through its descriptor. The store is poisoned: it
// steps and saves no more.
TEST(Drive, R04_a_flipped_bit_on_the_drive_is_named_and_poisons_the_store) {
  MILLPOND_IN_CHILD([&] {
    const TemporaryDirectory directory;
    Job job(directory.path(), "\"tile_elements\": 4096, \"host_memory_bytes\": 400000");
    Training training(job, "s", {{"a", 60000, 0, 0}});
    Status status;
    require_ok(training.bind(&status), status, "bind");
    training.train(1, 3);
    require_ok(phases().suspend(job.runtime, MILLPOND_SUSPEND_HOST_TIER, &status), status,
               "suspend");
    require_ok(phases().resume(job.runtime, &status), status, "resume");
    int flipped = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const std::string target = std::filesystem::read_symlink(entry.path());
      if (target.find(directory.path()) == std::string::npos) continue;
      const int file = open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
      struct stat info = {};
      if (file >= 0 && fstat(file, &info) == 0 && info.st_size > 60000 * 12) {
        char byte = 0;
        require(pread(file, &byte, 1, 20000) == 1, "read");
        byte = static_cast<char>(byte ^ 4);
        require(pwrite(file, &byte, 1, 20000) == 1, "write");
        ++flipped;
      }
      close(file);
    }
    require(flipped == 1, std::to_string(flipped) + " scratch files were found");
    require_code(training.step(training.make_step(4), &status), MILLPOND_E_CORRUPT, status, "step");
    require((status.flags & MILLPOND_STATUS_POISONED) != 0, status.text());
    require(status.offset == 16384, "the offset of the block: " + status.text());
    for (const char* part : {"bucket0", "block 1 of segment 0", "offset 16384"}) {
      require(std::string(status.message).find(part) != std::string::npos, status.text());
    }
    require_code(training.step(training.make_step(4), &status), MILLPOND_E_POISONED, status,
                 "a second step");
    const std::string saves = directory.path() + "/saves";
    millpond_io_args io = io_args(saves);
    require_code(table().save_to(training.store, &io, &status), MILLPOND_E_POISONED, status,
                 "a save of what is wrong");
    require_ok(job.destroy(&status), status, "destroy");
    training.store = nullptr;
  });
}

}  // namespace
}  // namespace millpond::tests
