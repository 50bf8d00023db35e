// File access as checkpoints need it, an interface: the plugin's real one stands on system calls,
// tests count, cut, kill and log through their own. Paths are relative to the base directory that
// the object was made for; implementations never leave it and never follow symbolic links. Every
// function throws Error with operation, path, offset, wanted, got.
#ifndef MILLPOND_CHECKPOINT_FILE_SYSTEM_H_
#define MILLPOND_CHECKPOINT_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace millpond::checkpoint {

class File {
 public:
  virtual ~File() = default;
  virtual std::uint64_t size() = 0;
  virtual void read(std::uint64_t offset,
                    std::span<std::byte> bytes) = 0;  // all of them, or throws E_CORRUPT
  virtual void write(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void sync_data() = 0;  // fdatasync
  virtual void sync() = 0;       // fsync
};

struct Entry {
  std::string name;
  enum class Kind : std::uint8_t { kFile, kDirectory, kOther } kind = Kind::kOther;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual std::vector<Entry> list(
      const std::string& directory) = 0;  // "" is the base; absent: empty
  virtual bool exists(const std::string& path) = 0;
  virtual void make_directories(
      const std::string& path) = 0;  // like mkdir -p; losing a race is fine
  virtual std::unique_ptr<File> create(const std::string& path,
                                       std::uint64_t reserve_bytes) = 0;  // E_NO_SPACE early
  virtual std::unique_ptr<File> open(
      const std::string& path) = 0;  // regular files only; read-only; E_MISSING
  // The finished file behind `descriptor` (open for writing) also becomes `path`, without copying:
  // by a link to it, or as a clone that shares its bytes on the drive. Any file of that name is
  // unlinked first. NULL, with nothing done, where neither can be had here: copy it then.
  virtual std::unique_ptr<File> take_in(const std::string& /*path*/, int /*descriptor*/) {
    return nullptr;
  }
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void sync_directory(const std::string& directory) = 0;
  virtual void remove_tree(const std::string& path) = 0;  // absent is fine
  // The path as a person would look for it, for messages.
  virtual std::string shown(const std::string& path) const { return path; }
};

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_FILE_SYSTEM_H_
