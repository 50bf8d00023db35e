#include "plugin/io/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "plugin/io/os_error.h"
#include "plugin/io/retries.h"
#include "plugin/io/sizes.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kStep = 8u << 20;  // page cache that a file may occupy, twice
// The cache keeps pages in larger pieces, and a piece that is only partly in a range that is
// dropped stays: each range begins a little before the end of the last one.
constexpr std::uint64_t kLargestPiece = 4u << 20;
// A transfer ends at 0x7ffff000 bytes whatever was asked for; whole steps keep offsets aligned.

// Advice: failing to drop pages harms nothing that was promised about bytes.
void drop(int fd, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t from = begin > kLargestPiece ? begin - kLargestPiece : 0;
  ::posix_fadvise(fd, static_cast<off_t>(from), static_cast<off_t>(end - from),
                  POSIX_FADV_DONTNEED);
}

}  // namespace

PosixFile::PosixFile(Fd fd, std::string path_for_messages)
    : fd_(std::move(fd)), path_(std::move(path_for_messages)) {}

std::uint64_t PosixFile::size() {
  struct stat info = {};
  if (::fstat(fd_.get(), &info) != 0) throw os_error("stat", path_, errno);
  return static_cast<std::uint64_t>(info.st_size);
}

void PosixFile::read(std::uint64_t offset, std::span<std::byte> bytes) {
  Retries retries;
  std::uint64_t done = 0;
  while (done < bytes.size()) {
    const std::size_t count = std::min<std::uint64_t>(kStep, bytes.size() - done);
    const ssize_t n =
        ::pread(fd_.get(), bytes.data() + done, count, static_cast<off_t>(offset + done));
    if (n < 0) {
      const int error = errno;
      if (retries.again(error)) continue;
      throw os_error("read", path_, error).at(offset + done).want(bytes.size(), done);
    }
    if (n == 0) {
      throw Error(MILLPOND_E_CORRUPT, "read", "the file ends before the bytes that it must hold")
          .path(path_)
          .at(offset)
          .want(bytes.size(), done);
    }
    drop_read(static_cast<std::uint64_t>(n));
    done += static_cast<std::uint64_t>(n);
  }
}

// Whatever is clean goes, also what was read ahead and not used yet: little, once in many MiB.
void PosixFile::drop_read(std::uint64_t bytes) {
  if (read_.fetch_add(bytes) + bytes < kStep) return;
  read_ = 0;
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

void PosixFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  Retries retries;
  std::uint64_t done = 0;
  while (done < bytes.size()) {
    const std::size_t count = std::min<std::uint64_t>(kStep, bytes.size() - done);
    const ssize_t n =
        ::pwrite(fd_.get(), bytes.data() + done, count, static_cast<off_t>(offset + done));
    if (n <= 0) {
      const int error = n < 0 ? errno : EIO;
      if (retries.again(error)) continue;
      note(error);
      throw os_error("write", path_, error).at(offset + done).want(bytes.size(), done);
    }
    push_written(offset + done, offset + done + static_cast<std::uint64_t>(n));
    done += static_cast<std::uint64_t>(n);
  }
}

void PosixFile::push_written(std::uint64_t offset, std::uint64_t end) {
  if (offset != written_.end) written_ = {offset / kPage * kPage, offset};
  written_.end = end;
  if (written_.end - written_.begin < kStep) return;
  wait_written();
  const Range range = {written_.begin, written_.end / kPage * kPage};
  if (::sync_file_range(fd_.get(), static_cast<off_t>(range.begin),
                        static_cast<off_t>(range.end - range.begin), SYNC_FILE_RANGE_WRITE) != 0) {
    note(errno);
  }
  on_its_way_ = range;
  written_.begin = range.end;
}

void PosixFile::wait_written() {
  if (on_its_way_.end == on_its_way_.begin) return;
  const Range range = std::exchange(on_its_way_, {});
  const off_t begin = static_cast<off_t>(range.begin);
  const off_t count = static_cast<off_t>(range.end - range.begin);
  if (::sync_file_range(
          fd_.get(), begin, count,
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) != 0) {
    note(errno);
  }
  drop(fd_.get(), range.begin, range.end);
}

void PosixFile::note(int error) {
  // Where the call itself is not to be had, fdatasync does all the work.
  const bool refused = error == ENOSYS || error == EPERM || error == EINVAL || error == ESPIPE ||
                       error == EOPNOTSUPP || error == EINTR;
  if (!refused && failed_ == 0) failed_ = error;
}

void PosixFile::sync_with(int (*call)(int), const char* name) {
  int result = 0;
  do {
    result = call(fd_.get());
  } while (result != 0 && errno == EINTR);
  if (result != 0) note(errno == EINVAL || errno == EOPNOTSUPP ? EIO : errno);
  if (failed_ != 0) throw os_error(name, path_, failed_);
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
  written_ = {};
  on_its_way_ = {};
}

void PosixFile::sync_data() { sync_with(&::fdatasync, "fdatasync"); }

void PosixFile::sync() { sync_with(&::fsync, "fsync"); }

}  // namespace millpond::plugin
