#include "host_adapters/command_line/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "millpond/error.hpp"

namespace millpond::cli {

void OutputFile::fail(const char* operation, int error_number) const {
  const bool full = error_number == ENOSPC || error_number == EDQUOT;
  throw Error(full ? MILLPOND_E_NO_SPACE : MILLPOND_E_IO, operation,
              std::generic_category().message(error_number))
      .path(path_.string())
      .field(option_)
      .os(error_number)
      .remedy("Name a file in a directory that exists, can be written to and has space");
}

OutputFile::OutputFile(std::filesystem::path path, std::string option)
    : path_(std::move(path)), option_(std::move(option)) {
  if (path_.empty() || is_standard_output()) return;
  std::error_code ignored;
  const auto type = std::filesystem::status(path_, ignored).type();
  if (type == std::filesystem::file_type::directory) fail("create", EISDIR);
  int flags = O_WRONLY | O_CLOEXEC;
  if (type == std::filesystem::file_type::regular ||
      type == std::filesystem::file_type::not_found || type == std::filesystem::file_type::none) {
    temporary_ = path_;
    temporary_ += ".part";
    flags |= O_CREAT | O_TRUNC;
  }
  fd_ = ::open(temporary_.empty() ? path_.c_str() : temporary_.c_str(), flags, 0666);
  if (fd_ < 0) {
    temporary_.clear();
    fail("create", errno);
  }
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::write(std::string_view bytes) {
  if (path_.empty()) return;
  const int fd = is_standard_output() ? STDOUT_FILENO : fd_;
  if (is_standard_output()) std::fflush(stdout);
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write", errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  if (temporary_.empty()) return;
  if (::fsync(fd_) != 0) fail("sync", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename", errno);
  temporary_.clear();
}

}  // namespace millpond::cli
