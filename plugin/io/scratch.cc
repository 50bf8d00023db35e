#include "plugin/io/scratch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "plugin/io/os_error.h"
#include "plugin/io/owner.h"
#include "plugin/io/probe.h"
#include "plugin/io/reopen.h"
#include "plugin/io/reserve.h"

namespace millpond::plugin {

struct ScratchRoot::State {
  std::string root_path;
  std::string path;
  Fd root;
  OwnedDirectory own;
  DirectoryAbility ability;
  std::uint64_t reclaimed = 0;
  pid_t maker = ::getpid();
  bool forked = false;

  // A forked child has the parent's descriptors: the lock and the directory are the parent's.
  bool in_child() const { return forked || maker != ::getpid(); }
  ~State() {
    if (own.directory && !in_child()) remove_owned(root.get(), std::move(own));
  }
};

ScratchRoot::ScratchRoot(std::string root, const std::string& direct)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.root_path = std::move(root);
  if (state.root_path.empty() || state.root_path.find('\0') != std::string::npos) {
    throw Error(MILLPOND_E_ARGUMENT, "open scratch directory", "empty, or with a NUL")
        .field("options.scratch");
  }
  do {
    state.root = Fd(::open(state.root_path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  } while (!state.root && errno == EINTR);
  if (!state.root) {
    // Not made here: it may be a mount point whose drive is absent.
    throw Error(MILLPOND_E_IO, "open scratch directory", errno_text(errno))
        .path(state.root_path)
        .field("options.scratch")
        .os(errno)
        .remedy("Name an existing directory on a local drive");
  }
  state.reclaimed = reclaim(state.root.get());
  state.own = make_owned_directory(state.root.get(), state.root_path);
  state.path = state.root_path + "/" + state.own.name;
  state.ability = probe_directory(state.own.directory.get(), state.path, direct);
}

ScratchRoot::~ScratchRoot() = default;

const std::string& ScratchRoot::path() const { return state_->path; }

const DirectoryAbility& ScratchRoot::ability() const { return state_->ability; }

std::uint64_t ScratchRoot::reclaimed() const { return state_->reclaimed; }

std::uint64_t ScratchRoot::free_bytes() const { return free_bytes_of(state_->root.get()); }

void ScratchRoot::forked_child() { state_->forked = true; }

Fd ScratchRoot::create(std::uint64_t bytes, const std::string& name_for_messages) {
  const State& state = *state_;
  const std::string path = state.path + "/" + name_for_messages;
  Fd fd(open_unnamed(state.own.directory.get(), state.ability.tmpfile, state.ability.direct));
  if (!fd) throw os_error("create scratch file", path, errno);
  reserve_space(fd.get(), bytes, path, Without::kWriteZeros);
  return fd;
}

bool cut(Fd& file, std::uint64_t bytes) {
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0 || info.st_nlink != 0 || !S_ISREG(info.st_mode)) return false;
  const int flags = ::fcntl(file.get(), F_GETFL);
  if (flags >= 0 && (flags & O_ACCMODE) != O_RDWR) {
    Fd writable = reopen_read_write(file.get());
    if (!writable) return false;
    file = std::move(writable);
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size <= bytes) return false;
  return ::ftruncate(file.get(), static_cast<off_t>(size - bytes)) == 0;
}

int drop_cached(int fd, std::uint64_t offset, std::uint64_t bytes) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return errno;
  if ((flags & O_DIRECT) != 0 || bytes == 0) return 0;
  // Dirty pages stay in the cache whatever is advised, so they are written first. The kernel tells
  // a failed write-back once: it must not be lost here. Refusals of the call are no failures.
  int error = 0;
  if (::sync_file_range(
          fd, static_cast<off_t>(offset), static_cast<off_t>(bytes),
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) != 0 &&
      (errno == EIO || errno == ENOSPC || errno == EDQUOT)) {
    error = errno;
  }
  // The cache keeps pages in pieces of up to 2 MiB; one that is only partly in the range stays.
  constexpr std::uint64_t kLargestPiece = 2u << 20;
  const std::uint64_t begin = offset > kLargestPiece ? offset - kLargestPiece : 0;
  ::posix_fadvise(fd, static_cast<off_t>(begin),
                  static_cast<off_t>(offset + bytes + kLargestPiece - begin), POSIX_FADV_DONTNEED);
  return error;
}

}  // namespace millpond::plugin
