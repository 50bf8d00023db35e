#include "plugin/io/read_only.h"

#include <fcntl.h>

#include <cerrno>

#include "plugin/io/os_error.h"

namespace millpond::plugin {

Fd reopen_read_only(int fd, const std::string& path_for_messages) {
  const int flags = ::fcntl(fd, F_GETFL);
  const std::string name = "/proc/self/fd/" + std::to_string(fd);
  for (;;) {
    Fd again(::open(name.c_str(), O_RDONLY | O_CLOEXEC | (flags < 0 ? 0 : flags & O_DIRECT)));
    if (again) return again;
    if (errno != EINTR) break;
  }
  Fd second(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!second) throw os_error("open a scratch file again", path_for_messages, errno);
  return second;
}

}  // namespace millpond::plugin
