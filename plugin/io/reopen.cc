#include "plugin/io/reopen.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>

#include "plugin/io/os_error.h"

namespace millpond::plugin {
namespace {

// Through /proc, since the file may have no name. Empty, with errno, where it fails.
Fd reopen(int fd, int access) {
  const int flags = ::fcntl(fd, F_GETFL);
  char name[sizeof "/proc/self/fd/-2147483648"];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  for (;;) {
    Fd again(::open(name, access | O_CLOEXEC | (flags < 0 ? 0 : flags & O_DIRECT)));
    if (again || errno != EINTR) return again;
  }
}

}  // namespace

Fd reopen_read_only(int fd, const std::string& path_for_messages) {
  if (Fd again = reopen(fd, O_RDONLY)) return again;
  Fd second(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!second) throw os_error("open a scratch file again", path_for_messages, errno);
  return second;
}

Fd reopen_read_write(int fd) { return reopen(fd, O_RDWR); }

}  // namespace millpond::plugin
