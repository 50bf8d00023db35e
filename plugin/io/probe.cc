#include "plugin/io/probe.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "plugin/io/os_error.h"
#include "plugin/io/reserve.h"
#include "plugin/io/sizes.h"

namespace millpond::plugin {
namespace {

constexpr off_t kAt = 4096;  // not 0: an engine or filesystem that drops offsets is found out

// Returns what failed, empty when the bytes came back.
std::string write_and_read(int fd) {
  const std::unique_ptr<unsigned char, decltype(&std::free)> memory(
      static_cast<unsigned char*>(std::aligned_alloc(kPage, 2 * kPage)), &std::free);
  if (!memory) return "no memory for the probe";
  unsigned char* sent = memory.get();
  unsigned char* back = memory.get() + kPage;
  for (std::size_t i = 0; i < kPage; ++i) {
    sent[i] = static_cast<unsigned char>((i * 2654435761u) >> 13);
    back[i] = static_cast<unsigned char>(~sent[i]);
  }
  const auto whole = [](ssize_t n, const char* what) -> std::string {
    if (n < 0) return std::string(what) + " gave " + errno_text(errno);
    if (n != static_cast<ssize_t>(kPage)) {
      return std::string(what) + " of 4096 bytes moved " + std::to_string(n);
    }
    return "";
  };
  ssize_t n = 0;
  do n = ::pwrite(fd, sent, kPage, kAt);
  while (n < 0 && errno == EINTR);
  if (std::string text = whole(n, "the first write"); !text.empty()) return text;
  do n = ::pread(fd, back, kPage, kAt);
  while (n < 0 && errno == EINTR);
  if (std::string text = whole(n, "the first read"); !text.empty()) return text;
  return std::equal(sent, sent + kPage, back) ? "" : "the first read gave other bytes";
}

std::string try_direct(int directory, bool anonymous) {
  const Fd fd(open_unnamed(directory, anonymous, true));
  if (!fd) return "open gave " + errno_text(errno);
  return write_and_read(fd.get());
}

}  // namespace

int open_unnamed(int directory, bool anonymous, bool direct) {
  const int flags = O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0);
  if (anonymous) {
    for (;;) {
      const int fd = ::openat(directory, ".", flags | O_TMPFILE, 0600);
      if (fd >= 0 || errno != EINTR) return fd;
    }
  }
  static std::atomic<std::uint64_t> counter{0};
  for (;;) {
    const std::string name = "file-" + std::to_string(counter.fetch_add(1));
    const int fd = ::openat(directory, name.c_str(), flags | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0 && (errno == EINTR || errno == EEXIST)) continue;
    const int error = errno;
    // Some filesystems make the file and only then refuse O_DIRECT.
    if (fd >= 0 || error == EINVAL) ::unlinkat(directory, name.c_str(), 0);
    errno = error;
    return fd;
  }
}

DirectoryAbility probe_directory(int directory, const std::string& path,
                                 const std::string& direct) {
  DirectoryAbility ability;
  const auto add = [&](const std::string& text) {
    ability.reason += (ability.reason.empty() ? "" : "; ") + text;
  };
  const int anonymous = open_unnamed(directory, true, false);
  ability.tmpfile = anonymous >= 0;
  Fd plain(anonymous);
  if (!ability.tmpfile) {
    add("O_TMPFILE: open gave " + errno_text(errno));
    plain = Fd(open_unnamed(directory, false, false));
    if (!plain) throw os_error("create a scratch file in", path, errno);
  }
  if (direct == "false") {
    add("O_DIRECT: not wanted");
  } else {
    const std::string why = try_direct(directory, ability.tmpfile);
    ability.direct = why.empty();
    if (!ability.direct) add("O_DIRECT: " + why);
    if (!ability.direct && direct == "true") {
      throw Error(MILLPOND_E_IO, "use O_DIRECT in", why)
          .path(path)
          .field("options.direct")
          .remedy("Choose another scratch directory, or let direct be \"auto\"");
    }
  }
  if (!ability.direct) {
    reserve_space(plain.get(), 2 * kPage, path, Without::kWriteZeros);
  }
  return ability;
}

}  // namespace millpond::plugin
