#include "plugin/io/posix_file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "plugin/io/beneath.h"
#include "plugin/io/os_error.h"
#include "plugin/io/posix_file.h"
#include "plugin/io/reserve.h"

namespace millpond::plugin {
namespace {

using checkpoint::Entry;
using checkpoint::File;

Entry::Kind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return Entry::Kind::kFile;
  return S_ISDIR(mode) ? Entry::Kind::kDirectory : Entry::Kind::kOther;
}

// fsync of a directory; some network filesystems have none and say EINVAL.
int sync_fd(int fd) {
  for (;;) {
    if (::fsync(fd) == 0 || errno == EINVAL || errno == EOPNOTSUPP) return 0;
    if (errno != EINTR) return errno;
  }
}

class PosixFileSystem final : public checkpoint::FileSystem {
 public:
  PosixFileSystem(std::string base, Fd fd) : base_(std::move(base)), fd_(std::move(fd)) {}

  std::vector<Entry> list(const std::string& directory) override;
  bool exists(const std::string& path) override;
  void make_directories(const std::string& path) override;
  std::unique_ptr<File> create(const std::string& path, std::uint64_t reserve_bytes) override;
  std::unique_ptr<File> open(const std::string& path) override;
  std::unique_ptr<File> take_in(const std::string& path, int descriptor) override;
  void rename(const std::string& from, const std::string& to) override;
  void sync_directory(const std::string& directory) override;
  void remove_tree(const std::string& path) override;
  std::string shown(const std::string& path) const override { return full(path); }

 private:
  struct Place {  // a name in an open directory
    Fd directory;
    std::string name;
  };
  // A new file, in the place of any that is there.
  Fd create_in(const Place& place, const std::string& path) const;
  // The directory that holds `path`. Its fd is -1, errno set, when it is not there.
  Place place_of(const std::string& path) const;
  Place place_or_throw(const char* operation, const std::string& path) const;
  std::string full(const std::string& path) const {
    return path.empty() ? base_ : base_ + "/" + path;
  }

  std::string base_;  // for messages
  Fd fd_;
};

PosixFileSystem::Place PosixFileSystem::place_of(const std::string& path) const {
  check_relative(path);
  if (path.empty()) throw Error(MILLPOND_E_ARGUMENT, "resolve", "the base itself").path(base_);
  const std::size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "" : path.substr(0, slash);
  Place place;
  place.name = slash == std::string::npos ? path : path.substr(slash + 1);
  place.directory = Fd(open_beneath(fd_.get(), parent, O_RDONLY | O_DIRECTORY));
  return place;
}

PosixFileSystem::Place PosixFileSystem::place_or_throw(const char* operation,
                                                       const std::string& path) const {
  Place place = place_of(path);
  if (!place.directory) throw os_error(operation, full(path), errno);
  return place;
}

std::vector<Entry> PosixFileSystem::list(const std::string& directory) {
  Fd fd(open_beneath(fd_.get(), directory, O_RDONLY | O_DIRECTORY));
  if (!fd && errno == ENOENT) return {};
  if (!fd) throw os_error("list", full(directory), errno);
  std::vector<Entry> entries;
  const int at = fd.get();
  const int error = for_each_entry(std::move(fd), [&](const char* name, unsigned char type) {
    Entry entry;
    entry.name = name;
    if (type == DT_UNKNOWN) {
      struct stat info = {};
      if (::fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) == 0) entry.kind = kind_of(info.st_mode);
    } else {
      entry.kind = kind_of(DTTOIF(type));
    }
    entries.push_back(std::move(entry));
  });
  if (error != 0) throw os_error("list", full(directory), error);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

bool PosixFileSystem::exists(const std::string& path) {
  if (path.empty()) return true;
  const Place place = place_of(path);
  struct stat info = {};
  if (place.directory &&
      ::fstatat(place.directory.get(), place.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    return true;
  }
  if (errno == ENOENT || errno == ENOTDIR) return false;
  throw os_error("stat", full(path), errno);
}

void PosixFileSystem::make_directories(const std::string& path) {
  check_relative(path);
  std::size_t end = 0;
  while (end < path.size()) {
    end = std::min(path.find('/', end), path.size());
    const std::string part = path.substr(0, end);
    const Place place = place_or_throw("make directory", part);
    if (::mkdirat(place.directory.get(), place.name.c_str(), 0777) == 0) {
      if (const int error = sync_fd(place.directory.get())) {
        throw os_error("sync the directory that holds", full(part), error);
      }
    } else if (errno != EEXIST) {
      throw os_error("make directory", full(part), errno);
    }
    ++end;
  }
  // What was there under one of the names may be something else than a directory.
  const Fd fd(open_beneath(fd_.get(), path, O_PATH | O_DIRECTORY));
  if (!fd) throw os_error("make directory", full(path), errno);
}

Fd PosixFileSystem::create_in(const Place& place, const std::string& path) const {
  Fd fd;
  for (int tries = 0; !fd; ++tries) {
    fd = Fd(open_beneath(place.directory.get(), place.name, O_RDWR | O_CREAT | O_EXCL, 0666));
    if (fd) break;
    if (errno != EEXIST || tries == 8) throw os_error("create", full(path), errno);
    if (::unlinkat(place.directory.get(), place.name.c_str(), 0) != 0 && errno != ENOENT) {
      throw os_error("create, removing what was there", full(path), errno);
    }
  }
  return fd;
}

std::unique_ptr<File> PosixFileSystem::create(const std::string& path,
                                              std::uint64_t reserve_bytes) {
  const Place place = place_or_throw("create", path);
  Fd fd = create_in(place, path);
  try {
    reserve_space(fd.get(), reserve_bytes, full(path), Without::kCheckFree);
  } catch (...) {
    ::unlinkat(place.directory.get(), place.name.c_str(), 0);
    throw;
  }
  return std::make_unique<PosixFile>(std::move(fd), full(path));
}

std::unique_ptr<File> PosixFileSystem::take_in(const std::string& path, int descriptor) {
  const Place place = place_or_throw("link", path);
  if (::unlinkat(place.directory.get(), place.name.c_str(), 0) != 0 && errno != ENOENT) {
    throw os_error("link, removing what was there", full(path), errno);
  }
  const std::string source = "/proc/self/fd/" + std::to_string(descriptor);
  if (::linkat(AT_FDCWD, source.c_str(), place.directory.get(), place.name.c_str(),
               AT_SYMLINK_FOLLOW) == 0) {
    // A scratch file is private; a checkpoint's follows the umask, as the directory here did.
    struct stat info = {};
    if (::fstat(place.directory.get(), &info) != 0 ||
        ::fchmod(descriptor, info.st_mode & 0666) != 0) {
      throw os_error("set the mode of", full(path), errno);
    }
    Fd second(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!second) throw os_error("open", full(path), errno);
    return std::make_unique<PosixFile>(std::move(second), full(path));
  }
  Fd fd = create_in(place, path);
  if (::ioctl(fd.get(), FICLONE, descriptor) == 0) {
    return std::make_unique<PosixFile>(std::move(fd), full(path));
  }
  ::unlinkat(place.directory.get(), place.name.c_str(), 0);
  return nullptr;
}

std::unique_ptr<File> PosixFileSystem::open(const std::string& path) {
  // O_NONBLOCK: a FIFO without a writer would otherwise be waited for. It does not change how
  // regular files are read.
  Fd fd(open_beneath(fd_.get(), path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  if (!fd) throw os_error("open", full(path), errno);
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) throw os_error("stat", full(path), errno);
  if (!S_ISREG(info.st_mode)) {
    throw Error(MILLPOND_E_CORRUPT, "open", "not a regular file").path(full(path));
  }
  return std::make_unique<PosixFile>(std::move(fd), full(path));
}

void PosixFileSystem::rename(const std::string& from, const std::string& to) {
  const Place source = place_or_throw("rename", from);
  const Place target = place_or_throw("rename to", to);
  if (::renameat(source.directory.get(), source.name.c_str(), target.directory.get(),
                 target.name.c_str()) != 0) {
    throw os_error("rename", full(from) + " to " + full(to), errno);
  }
}

void PosixFileSystem::sync_directory(const std::string& directory) {
  const Fd fd(open_beneath(fd_.get(), directory, O_RDONLY | O_DIRECTORY));
  if (!fd) throw os_error("sync directory", full(directory), errno);
  if (const int error = sync_fd(fd.get())) throw os_error("sync directory", full(directory), error);
}

void PosixFileSystem::remove_tree(const std::string& path) {
  const Place place = place_of(path);
  if (!place.directory && errno == ENOENT) return;
  if (!place.directory) throw os_error("remove", full(path), errno);
  if (const int error = remove_entry(place.directory.get(), place.name)) {
    throw os_error("remove", full(path), error);
  }
}

// mkdir -p of a host's path, each new directory durable in its parent.
void make_base(const std::string& base) {
  for (std::size_t end = base.front() == '/' ? 1 : 0; end < base.size(); ++end) {
    end = std::min(base.find('/', end), base.size());
    const std::string part = base.substr(0, end);
    if (part.empty() || part.back() == '/') continue;
    if (::mkdir(part.c_str(), 0777) != 0) {
      if (errno == EEXIST || errno == EROFS || errno == EACCES || errno == EPERM) continue;
      throw os_error("make directory", part, errno);
    }
    const Fd parent(::open((part + "/..").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const int error = parent ? sync_fd(parent.get()) : errno;
    if (error != 0) throw os_error("sync the directory that holds", part, error);
  }
}

}  // namespace

std::unique_ptr<checkpoint::FileSystem> open_file_system(const std::string& base, bool create) {
  if (base.empty() || base.find('\0') != std::string::npos) {
    throw Error(MILLPOND_E_ARGUMENT, "open directory", "the path is empty or holds a NUL");
  }
  if (create) make_base(base);
  Fd fd;
  do {
    fd = Fd(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  } while (!fd && errno == EINTR);
  if (!fd) throw os_error("open directory", base, errno);
  return std::make_unique<PosixFileSystem>(base, std::move(fd));
}

}  // namespace millpond::plugin
