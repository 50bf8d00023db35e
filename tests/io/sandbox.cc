#include "tests/io/sandbox.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <stdexcept>

namespace millpond::sandbox {
namespace {

struct Skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr uid_t kNobody = 65534;

}  // namespace

TempDirectory::TempDirectory(bool in_memory) {
  const char* base = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  if (in_memory && ::access("/dev/shm", W_OK) == 0) base = "/dev/shm";
  path_ = std::string(base == nullptr ? "/tmp" : base) + "/millpond-io-test-XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

PageMemory::PageMemory(std::uint64_t bytes) : bytes_(bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  data_ = static_cast<std::byte*>(memory);
}

PageMemory::~PageMemory() { ::munmap(data_, bytes_); }

void fill(std::byte* memory, std::uint64_t bytes, std::uint64_t seed) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::uint64_t i = 0; i < bytes; ++i) {
    if (i % 8 == 0) x = x * 6364136223846793005u + 1442695040888963407u;
    memory[i] = static_cast<std::byte>(x >> (8 * (i % 8)));
  }
}

std::vector<std::byte> read_plainly(const std::string& path, std::uint64_t offset,
                                    std::uint64_t bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw std::runtime_error("open " + path + " failed");
  std::vector<std::byte> result(bytes);
  std::uint64_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::pread(fd, result.data() + done, bytes - done, offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<std::uint64_t>(n);
  }
  ::close(fd);
  result.resize(done);
  return result;
}

std::string path_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("does not hold: " + what);
}

void skip(const std::string& why) { throw Skipped(why); }

std::string in_child(const std::function<void()>& body, unsigned seconds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "pipe2 failed";
  const pid_t child = ::fork();
  if (child < 0) return "fork failed";
  if (child == 0) {
    ::close(ends[0]);
    ::alarm(seconds);
    if (::unshare(CLONE_NEWNS) == 0) ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    std::string text;
    try {
      body();
    } catch (const Skipped& why) {
      text = std::string("skip: ") + why.what();
    } catch (const std::exception& error) {
      text = error.what();
    }
    const bool told = ::write(ends[1], text.data(), text.size()) >= 0;
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return "the child died of signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0 && text.empty()) {
    return "the child ended with " + std::to_string(WEXITSTATUS(status));
  }
  return text;
}

void refuse(const std::vector<Refusal>& refusals) {
  const auto offset_of = [](unsigned argument) {
    return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8 * argument);
  };
  std::vector<sock_filter> program;
  for (const Refusal& refusal : refusals) {
    const std::uint32_t answer =
        SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(refusal.error) & SECCOMP_RET_DATA);
    const auto call = static_cast<std::uint32_t>(refusal.call);
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
    if (refusal.mask == 0) {
      program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    } else {
      program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4));
      program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset_of(refusal.argument)));
      program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, refusal.mask));
      program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refusal.mask, 0, 1));
    }
    program.push_back(BPF_STMT(BPF_RET | BPF_K, answer));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) {
    skip("seccomp filters are not allowed here");
  }
}

void mount_here(const std::string& type, const std::string& target, const std::string& options) {
  if (::geteuid() != 0) skip("mounting needs root");
  std::filesystem::create_directories(target);
  if (::mount(type.c_str(), target.c_str(), type.c_str(), 0, options.c_str()) != 0) {
    skip("mounting " + type + " is not possible here: " + strerrordesc_np(errno));
  }
}

void mount_loop(const std::string& type, const std::string& target, unsigned mebibytes) {
  if (::geteuid() != 0) skip("mounting needs root");
  std::filesystem::create_directories(target);
  const std::string image = target + ".image";
  const std::string make = (type == "ext4" ? "mkfs.ext4 -q -F " : "mkfs.xfs -q -f ") + image;
  const std::string command = "truncate -s " + std::to_string(mebibytes) + "M " + image + " && " +
                              make + " && mount -o loop " + image + " " + target;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): a child of one thread
  if (std::system(("( " + command + " ) > /dev/null 2>&1").c_str()) != 0) {
    skip("no " + type + " on a loop device here (mkfs." + type + ", /dev/loop)");
  }
}

void become_nobody() {
  if (::geteuid() != 0) return;
  if (::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
      ::setresuid(kNobody, kNobody, kNobody) != 0) {
    skip("another user cannot be had here");
  }
}

}  // namespace millpond::sandbox
