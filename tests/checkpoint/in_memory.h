// Where the files of a test are that counts cases rather than what a drive does.
#ifndef MILLPOND_TESTS_CHECKPOINT_IN_MEMORY_H_
#define MILLPOND_TESTS_CHECKPOINT_IN_MEMORY_H_

#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

namespace millpond::tests {

// While it lives, TemporaryDirectory makes its directories in memory, where this machine has a
// filesystem there with so many bytes free; else where it makes them anyway.
class InMemory {
 public:
  explicit InMemory(std::uint64_t bytes = 32u << 20) {
    if (const char* now = std::getenv("TEST_TMPDIR"))
      before_ = now;  // NOLINT(concurrency-mt-unsafe)
    struct statvfs info = {};
    if (statvfs(kPath, &info) != 0 || access(kPath, W_OK) != 0) return;
    if (info.f_bavail * info.f_frsize < bytes) return;
    setenv("TEST_TMPDIR", kPath, 1);  // NOLINT(concurrency-mt-unsafe)
  }
  ~InMemory() {
    // NOLINTNEXTLINE(concurrency-mt-unsafe)
    before_ ? setenv("TEST_TMPDIR", before_->c_str(), 1) : unsetenv("TEST_TMPDIR");
  }
  InMemory(const InMemory&) = delete;
  InMemory& operator=(const InMemory&) = delete;

 private:
  static constexpr const char* kPath = "/dev/shm";
  std::optional<std::string> before_;
};

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_CHECKPOINT_IN_MEMORY_H_
