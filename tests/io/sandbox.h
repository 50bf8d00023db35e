// What io's tests need of the machine: temporary directories, page-aligned memory, and forked
// children in which system calls are refused, limits lowered, and filesystems mounted for real.
#ifndef MILLPOND_TESTS_IO_SANDBOX_H_
#define MILLPOND_TESTS_IO_SANDBOX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace millpond::sandbox {

// In TMPDIR or /tmp; in_memory: on tmpfs where there is one, for tests that count milliseconds.
class TempDirectory {
 public:
  explicit TempDirectory(bool in_memory = false);
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class PageMemory {
 public:
  explicit PageMemory(std::uint64_t bytes);
  ~PageMemory();
  PageMemory(const PageMemory&) = delete;
  PageMemory& operator=(const PageMemory&) = delete;
  std::byte* data() { return data_; }
  std::uint64_t size() const { return bytes_; }

 private:
  std::byte* data_;
  std::uint64_t bytes_;
};

// Bytes that differ by seed and position.
void fill(std::byte* memory, std::uint64_t bytes, std::uint64_t seed);
// What a plain buffered descriptor of its own reads; another way than the engines'.
std::vector<std::byte> read_plainly(const std::string& path, std::uint64_t offset,
                                    std::uint64_t bytes);
std::string path_of(int fd);  // /proc/self/fd/N, which opens also files without a name

// Throws with the place when the condition does not hold: gtest's own checks do not reach out of a
// child.
void require(bool condition, const std::string& what);
[[noreturn]] void skip(const std::string& why);

// Runs body in a forked child with a mount namespace of its own; "" when it returned, "skip: why",
// or what it threw or died of. A child that is not done after `seconds` is killed by its alarm.
std::string in_child(const std::function<void()>& body, unsigned seconds = 180);

#define MILLPOND_IN_CHILD(...)                                            \
  do {                                                                    \
    const std::string told_ = ::millpond::sandbox::in_child(__VA_ARGS__); \
    if (told_.rfind("skip: ", 0) == 0) GTEST_SKIP() << told_.substr(6);   \
    EXPECT_EQ(told_, "");                                                 \
  } while (0)

// Only in a child: from now on the kernel answers a call with an errno, where the given argument
// has all the bits of the mask (mask 0: always).
struct Refusal {
  long call;
  int error;
  unsigned argument = 0;
  std::uint32_t mask = 0;
};
void refuse(const std::vector<Refusal>& refusals);

// Only in a child, and only as root; skip otherwise. The mount goes with the child.
void mount_here(const std::string& type, const std::string& target, const std::string& options);
// A filesystem of "ext4" or "xfs" in a file, on a loop device.
void mount_loop(const std::string& type, const std::string& target, unsigned mebibytes);
void become_nobody();  // gives up root

}  // namespace millpond::sandbox

#endif  // MILLPOND_TESTS_IO_SANDBOX_H_
