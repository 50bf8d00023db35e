// The ring's view of the host tier: registered memory is pinned once instead of at each transfer.
#ifndef MILLPOND_PLUGIN_IO_REGISTERED_MEMORY_H_
#define MILLPOND_PLUGIN_IO_REGISTERED_MEMORY_H_

#include <liburing.h>

#include <cstddef>
#include <cstdint>

namespace millpond::plugin {

class RegisteredMemory {
 public:
  explicit RegisteredMemory(io_uring* ring) : ring_(ring) {}

  // Replaces what was registered; bytes 0 registers nothing. Returns errno, 0 when all of it is.
  int use(const std::byte* region, std::uint64_t bytes);
  // The registered piece that holds all of the range, -1 when none does.
  int index_of(const std::byte* memory, std::uint64_t bytes) const;

 private:
  io_uring* ring_;
  const std::byte* region_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_REGISTERED_MEMORY_H_
