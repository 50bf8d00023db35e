#include "plugin/io/beneath.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "plugin/io/os_error.h"

namespace millpond::plugin {
namespace {

constexpr int kMostLevels = 32;  // of a tree to remove; ours have four

int open_part(int directory, const char* name, int flags, mode_t mode) {
  for (;;) {
    const int fd = ::openat(directory, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EINTR) return fd;
  }
}

// O_DIRECTORY on a symbolic link says ENOTDIR; the link is what the reader of a message must know.
void name_link(int directory, const char* name) {
  struct stat info = {};
  if (errno == ENOTDIR && ::fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISLNK(info.st_mode)) {
    errno = ELOOP;
  } else {
    errno = errno == 0 ? ENOTDIR : errno;
  }
}

// What another process has removed meanwhile is as gone as if it had been this one.
int unless_gone(int error) { return error == ENOENT ? 0 : error; }

// Files first, then the directories, so that one descriptor a level is open.
// NOLINTNEXTLINE(misc-no-recursion)
int remove_below(int directory, const std::string& name, int levels) {
  if (::unlinkat(directory, name.c_str(), 0) == 0) return 0;
  // EPERM: what POSIX says of directories.
  if (errno != EISDIR && errno != EPERM) return unless_gone(errno);
  if (levels == 0) return ELOOP;
  const int fd = open_part(directory, name.c_str(), O_RDONLY | O_DIRECTORY, 0);
  if (fd < 0) return unless_gone(errno);
  const Fd inside(fd);
  const int again = open_part(inside.get(), ".", O_RDONLY | O_DIRECTORY, 0);
  if (again < 0) return unless_gone(errno);
  std::vector<std::string> names;
  int error = for_each_entry(Fd(again),
                             [&](const char* entry, unsigned char) { names.emplace_back(entry); });
  for (std::size_t i = 0; error == 0 && i < names.size(); ++i) {
    error = remove_below(inside.get(), names[i], levels - 1);
  }
  if (error != 0) return error;
  return ::unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0 ? 0 : unless_gone(errno);
}

}  // namespace

void check_relative(std::string_view path) {
  const auto refuse = [&](const char* why) {
    throw Error(MILLPOND_E_ARGUMENT, "resolve", why).path(std::string(path));
  };
  if (path.find('\0') != std::string_view::npos) refuse("the path holds a NUL");
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part.empty()) refuse("the path is absolute or has an empty part");
    if (part == "." || part == "..") refuse("the path has a part that is . or ..");
    if (end + 1 == path.size()) refuse("the path ends in a slash");
    at = end + 1;
  }
}

int open_beneath_kernel(int directory, const std::string& path, int flags, mode_t mode) {
  struct open_how how = {};
  how.flags = static_cast<std::uint64_t>(flags | O_NOFOLLOW | O_CLOEXEC);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const char* name = path.empty() ? "." : path.c_str();
  // EAGAIN: something was renamed meanwhile and the kernel cannot vouch for the way.
  for (int tries = 0;; ++tries) {
    const long fd = ::syscall(SYS_openat2, directory, name, &how, sizeof how);
    if (fd >= 0 || (errno != EINTR && (errno != EAGAIN || tries > 100))) {
      return static_cast<int>(fd);
    }
  }
}

int open_beneath_walk(int directory, const std::string& path, int flags, mode_t mode) {
  Fd held;
  int at = directory;
  std::size_t begin = 0;
  for (std::size_t slash = path.find('/'); slash != std::string::npos;
       begin = slash + 1, slash = path.find('/', begin)) {
    const std::string part = path.substr(begin, slash - begin);
    const int next = open_part(at, part.c_str(), O_PATH | O_DIRECTORY, 0);
    if (next < 0) {
      name_link(at, part.c_str());
      return -1;
    }
    held = Fd(next);
    at = held.get();
  }
  const std::string last = path.empty() ? "." : path.substr(begin);
  const int fd = open_part(at, last.c_str(), flags, mode);
  if (fd < 0) name_link(at, last.c_str());
  return fd;
}

int open_beneath(int directory, const std::string& path, int flags, mode_t mode) {
  check_relative(path);
  const int fd = open_beneath_kernel(directory, path, flags, mode);
  // Sandboxes answer unknown calls with ENOSYS or EPERM.
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return fd;
  return open_beneath_walk(directory, path, flags, mode);
}

int for_each_entry(Fd directory, const std::function<void(const char*, unsigned char)>& visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(directory.get()), &::closedir);
  if (!stream) return errno;
  directory.release();
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());  // NOLINT(concurrency-mt-unsafe): own stream
    if (entry == nullptr) return errno;
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) {
      visit(entry->d_name, entry->d_type);
    }
  }
}

int remove_entry(int directory, const std::string& name) {
  return remove_below(directory, name, kMostLevels);
}

}  // namespace millpond::plugin
