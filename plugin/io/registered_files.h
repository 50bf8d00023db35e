// The ring's table of files: a registered file saves the kernel a look-up for each transfer.
#ifndef MILLPOND_PLUGIN_IO_REGISTERED_FILES_H_
#define MILLPOND_PLUGIN_IO_REGISTERED_FILES_H_

#include <liburing.h>

#include <cstdint>
#include <vector>

namespace millpond::plugin {

// Filled lazily, a file at its first transfer. A table entry keeps its file open after close(2),
// and a descriptor's number may come back for another file: forget() must be called before a
// descriptor is closed.
class RegisteredFiles {
 public:
  // Nothing is registered, and index_of gives -1 always, where the kernel refuses the table.
  explicit RegisteredFiles(io_uring* ring);

  // The entry of the file, -1 where it is used by its number. No allocation here.
  int index_of(int fd);
  void forget(int fd);

 private:
  static constexpr std::int16_t kUnknown = -1;
  static constexpr std::int16_t kRefused = -2;

  io_uring* ring_;
  std::vector<std::int16_t> entry_of_;  // by descriptor
  std::vector<std::int16_t> unused_;    // entries
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_REGISTERED_FILES_H_
