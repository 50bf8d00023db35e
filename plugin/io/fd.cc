#include <unistd.h>

#include <utility>

#include "plugin/io/scratch.h"

namespace millpond::plugin {

Fd::~Fd() {
  // Not repeated on EINTR: Linux has closed the descriptor then, and its number may be another's.
  if (fd_ >= 0) ::close(fd_);
}

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

}  // namespace millpond::plugin
