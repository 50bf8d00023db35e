#include "plugin/io/reserve.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "plugin/core/blocked_signals.h"
#include "plugin/io/os_error.h"
#include "plugin/io/sizes.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kZeroBytes = 1u << 20;

int allocate(int fd, std::uint64_t bytes) {
  // tmpfs undoes a fallocate that a signal interrupts: under a steady timer it would never get
  // done.
  const BlockedSignals held;
  for (;;) {
    if (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

// In whole pages, so that it works on files opened with O_DIRECT.
int write_zeros(int fd, std::uint64_t bytes) {
  const std::unique_ptr<void, decltype(&std::free)> zeros(std::aligned_alloc(kPage, kZeroBytes),
                                                          &std::free);
  if (!zeros) return ENOMEM;
  std::fill_n(static_cast<char*>(zeros.get()), kZeroBytes, '\0');
  const std::uint64_t whole = (bytes + kPage - 1) / kPage * kPage;
  for (std::uint64_t at = 0; at < whole;) {
    const std::size_t count = std::min(kZeroBytes, whole - at);
    const ssize_t n = ::pwrite(fd, zeros.get(), count, static_cast<off_t>(at));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return errno;
    if (static_cast<std::uint64_t>(n) < kPage) return ENOSPC;
    at += static_cast<std::uint64_t>(n) / kPage * kPage;
  }
  return ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

}  // namespace

std::uint64_t free_bytes_of(int fd) {
  struct statvfs info = {};
  while (::fstatvfs(fd, &info) != 0) {
    if (errno != EINTR) return 0;
  }
  if (info.f_blocks == 0) return UINT64_MAX;  // ramfs and the like do not count
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

void reserve_space(int fd, std::uint64_t bytes, const std::string& path, Without without) {
  if (bytes == 0) return;
  // A file beyond RLIMIT_FSIZE would be answered by SIGXFSZ, which ends the process.
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur) {
    throw Error(MILLPOND_E_NO_SPACE, "reserve space", "the file size limit of the process")
        .path(path)
        .want(bytes, limit.rlim_cur)
        .os(EFBIG)
        .remedy("Raise RLIMIT_FSIZE (ulimit -f)");
  }
  const std::uint64_t free = free_bytes_of(fd);
  int error = allocate(fd, bytes);
  if (error == EOPNOTSUPP || error == ENOSYS) {
    if (without == Without::kWriteZeros) {
      error = write_zeros(fd, bytes);
    } else if (bytes > free) {
      error = ENOSPC;
    } else {
      error = ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
    }
  }
  if (error == 0) return;
  if (::ftruncate(fd, 0) != 0) {
    // The caller removes the file; nothing more can be done for it here.
  }
  throw os_error("reserve space", path, error).want(bytes, free);
}

}  // namespace millpond::plugin
