#include "host_adapters/sample/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "millpond/error.hpp"

namespace millpond::sample {
namespace {

Error failed(const char* operation, const std::filesystem::path& path, int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT;
  const std::int32_t code = full                     ? MILLPOND_E_NO_SPACE
                            : error_number == ENOENT ? MILLPOND_E_MISSING
                                                     : MILLPOND_E_IO;
  return Error(code, operation, "the operating system refused")
      .path(path.string())
      .os(error_number);
}

class Descriptor {
 public:
  Descriptor(const char* operation, const std::filesystem::path& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) throw failed(operation, path, errno);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

void sync_directory(const std::filesystem::path& path) {
  const Descriptor directory("open directory", path, O_RDONLY | O_DIRECTORY);
  if (::fsync(directory.get()) != 0) throw failed("sync directory", path, errno);
}

void write_durably(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::path temporary = path;
  temporary += ".part";
  {
    const Descriptor file("create", temporary, O_WRONLY | O_CREAT | O_TRUNC);
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = ::write(file.get(), bytes.data() + done, bytes.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        throw failed("write", temporary, count < 0 ? errno : EIO).at(done).want(bytes.size(), done);
      }
      done += static_cast<std::size_t>(count);
    }
    if (::fsync(file.get()) != 0) throw failed("sync", temporary, errno);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) throw failed("rename", temporary, errno);
  sync_directory(path.parent_path().empty() ? "." : path.parent_path());
}

std::string read_whole(const std::filesystem::path& path) {
  const Descriptor file("open", path, O_RDONLY);
  std::string bytes;
  char piece[65536];
  for (;;) {
    const ssize_t count = ::read(file.get(), piece, sizeof(piece));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw failed("read", path, errno).at(bytes.size());
    if (count == 0) return bytes;
    bytes.append(piece, static_cast<std::size_t>(count));
  }
}

}  // namespace millpond::sample
