// A checkpoint's file on system calls.
#ifndef MILLPOND_PLUGIN_IO_POSIX_FILE_H_
#define MILLPOND_PLUGIN_IO_POSIX_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/file_system.h"
#include "plugin/io/scratch.h"

namespace millpond::plugin {

// Buffered, because its transfers may start anywhere; what passes through leaves the page cache
// again in steps of a few MiB, so that a save or load of any size does not push out the host's
// memory. One thread at a time but for read().
class PosixFile final : public checkpoint::File {
 public:
  PosixFile(Fd fd, std::string path_for_messages);

  std::uint64_t size() override;
  void read(std::uint64_t offset, std::span<std::byte> bytes) override;
  void write(std::uint64_t offset, std::span<const std::byte> bytes) override;
  void sync_data() override;
  void sync() override;

 private:
  void drop_read(std::uint64_t bytes);
  void push_written(std::uint64_t offset, std::uint64_t end);
  void wait_written();
  // The kernel tells a failed write-back once per descriptor: it is kept, so that every later
  // sync fails as well.
  void note(int error);
  void sync_with(int (*call)(int), const char* name);

  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  Fd fd_;
  std::string path_;
  std::atomic<std::uint64_t> read_{0};  // bytes, since the page cache was last told to forget them
  Range written_;                       // written, its write-back not started
  Range on_its_way_;                    // write-back started, not waited for
  int failed_ = 0;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_POSIX_FILE_H_
