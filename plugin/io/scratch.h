// The live files of a store: private, reserved, gone when their owner is. All of them are opened,
// sized and removed here.
#ifndef MILLPOND_PLUGIN_IO_SCRATCH_H_
#define MILLPOND_PLUGIN_IO_SCRATCH_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace millpond::plugin {

// Owner of a file descriptor. Move-only.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd();
  Fd(Fd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Fd& operator=(Fd&& other) noexcept;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_ = -1;
};

// What one scratch directory can do, found by trying.
struct DirectoryAbility {
  bool direct = false;   // a real O_DIRECT write and read of 4096 bytes came back equal
  bool tmpfile = false;  // O_TMPFILE works
  std::string reason;    // why not, for the log
};

// A process's private place under each scratch root: <root>/millpond-<pid>-<random>/ (0700) with an
// owner lock (flock on `owner`). Constructing it reclaims directories of dead owners under the same
// root and never touches those of living ones. Throws Error(E_IO) when a root cannot be used.
class ScratchRoot {
 public:
  // direct: "auto", "true", "false"; "true" throws where O_DIRECT does not work.
  ScratchRoot(std::string root, const std::string& direct);
  ~ScratchRoot();  // removes the private directory
  ScratchRoot(const ScratchRoot&) = delete;
  ScratchRoot& operator=(const ScratchRoot&) = delete;

  const std::string& path() const;
  const DirectoryAbility& ability() const;
  std::uint64_t reclaimed() const;   // directories of dead owners removed at construction
  std::uint64_t free_bytes() const;  // statvfs, for messages
  void forked_child();               // the destructor then leaves everything alone

  // A new file of exactly `bytes`, all of it reserved (fallocate), 0600, O_DIRECT where
  // ability().direct, anonymous where ability().tmpfile, else unlinked while it is open. Throws
  // Error(E_NO_SPACE) with wanted = bytes and got = free bytes.
  Fd create(std::uint64_t bytes, const std::string& name_for_messages);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Gives back the space of the last `bytes` of a file without a name, which may be open for reading
// only. False: nothing is left, or it cannot be cut; closing it gives back the rest.
bool cut(Fd& file, std::uint64_t bytes);

// Buffered files drop their pages from the page cache as they go (posix_fadvise DONTNEED), so that
// the host tier is the only memory that streaming uses. No-op for O_DIRECT files. Written pages are
// waited for: 0, or the errno with which the kernel failed to write them (told only once).
int drop_cached(int fd, std::uint64_t offset, std::uint64_t bytes);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_SCRATCH_H_
