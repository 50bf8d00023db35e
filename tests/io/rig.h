// An Engine over a FaultEngine over a real one, with a file and memory to move.
#ifndef MILLPOND_TESTS_IO_RIG_H_
#define MILLPOND_TESTS_IO_RIG_H_

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "plugin/io/engine.h"
#include "plugin/io/scratch.h"
#include "tests/io/fault_engine.h"
#include "tests/io/sandbox.h"

namespace millpond::plugin {

class Rig {
 public:
  Rig(const std::string& kind, std::uint32_t depth, std::chrono::milliseconds timeout) {
    auto raw = std::make_unique<FaultEngine>(make_raw_engine(kind, depth).raw);
    faults = raw.get();
    engine = std::make_unique<Engine>(std::move(raw), timeout);
  }

  // Everything that was submitted, reaped.
  std::vector<Transfer*> reap_all() {
    std::vector<Transfer*> all;
    while (engine->in_flight() > 0) {
      std::array<Transfer*, 16> some = {};
      const std::size_t count = engine->reap(some, true);
      all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
    }
    return all;
  }

  Transfer run(Transfer::Kind kind, int fd, std::uint64_t offset, std::byte* memory,
               std::uint64_t bytes) {
    Transfer transfer;
    transfer.kind = kind;
    transfer.fd = fd;
    transfer.offset = offset;
    transfer.memory = memory;
    transfer.bytes = bytes;
    engine->submit(&transfer);
    reap_all();
    return transfer;
  }
  Transfer write(int fd, std::uint64_t offset, std::byte* memory, std::uint64_t bytes) {
    return run(Transfer::Kind::kWrite, fd, offset, memory, bytes);
  }
  Transfer read(int fd, std::uint64_t offset, std::byte* memory, std::uint64_t bytes) {
    return run(Transfer::Kind::kRead, fd, offset, memory, bytes);
  }

  FaultEngine* faults = nullptr;
  std::unique_ptr<Engine> engine;
};

inline Fd open_new(const std::string& path, int more_flags = 0) {
  return Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | more_flags, 0600));
}

inline bool same(const std::vector<std::byte>& bytes, const std::byte* memory) {
  return std::equal(bytes.begin(), bytes.end(), memory);
}

}  // namespace millpond::plugin

#endif  // MILLPOND_TESTS_IO_RIG_H_
