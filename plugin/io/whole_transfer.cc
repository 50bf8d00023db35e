#include "plugin/io/whole_transfer.h"

#include <unistd.h>

#include <cerrno>

#include "plugin/io/os_error.h"
#include "plugin/io/retries.h"
#include "plugin/io/sizes.h"

namespace millpond::plugin {
namespace {

// `call(done)` moves bytes from `done` on, as pread and pwrite do.
template <typename Call>
void move_all(const char* operation, std::uint64_t offset, std::uint64_t bytes,
              const std::string& path, Call&& call) {
  Retries retries;
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t n = call(done);
    if (n < 0) {
      const int error = errno;
      if (retries.again(error)) continue;
      throw os_error(operation, path, error).at(offset + done).want(bytes, done);
    }
    if (n == 0) {
      throw Error(MILLPOND_E_IO, operation, "the file ends before its reserved size")
          .path(path)
          .at(offset + done)
          .want(bytes, done);
    }
    const std::uint64_t before = done;
    done += static_cast<std::uint64_t>(n);
    if (done < bytes && done / kPage * kPage > before) done = done / kPage * kPage;
  }
}

}  // namespace

void read_whole(int fd, std::uint64_t offset, std::span<std::byte> bytes, const std::string& path) {
  move_all("read", offset, bytes.size(), path, [&](std::uint64_t done) {
    return ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
  });
}

void write_whole(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                 const std::string& path) {
  move_all("write", offset, bytes.size(), path, [&](std::uint64_t done) {
    return ::pwrite(fd, bytes.data() + done, bytes.size() - done,
                    static_cast<off_t>(offset + done));
  });
}

}  // namespace millpond::plugin
