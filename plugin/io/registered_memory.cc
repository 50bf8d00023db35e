#include "plugin/io/registered_memory.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kPiece = 1ull << 30;  // a larger one is refused with EFAULT
constexpr int kMostTries = 20;

}  // namespace

int RegisteredMemory::use(const std::byte* region, std::uint64_t bytes) {
  const bool had = std::exchange(bytes_, 0) != 0;
  if (had) io_uring_unregister_buffers(ring_);
  if (bytes == 0) return 0;
  std::vector<iovec> pieces;
  for (std::uint64_t at = 0; at < bytes; at += kPiece) {
    pieces.push_back({const_cast<std::byte*>(region) + at,
                      static_cast<std::size_t>(std::min(kPiece, bytes - at))});
  }
  // What was just unregistered is given back to RLIMIT_MEMLOCK a moment later.
  for (int tries = 0;; ++tries) {
    const int result =
        io_uring_register_buffers(ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
    if (result == 0) break;
    const bool again = result == -EINTR || (result == -ENOMEM && had);
    if (!again || tries == kMostTries) return -result;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  region_ = region;
  bytes_ = bytes;
  return 0;
}

int RegisteredMemory::index_of(const std::byte* memory, std::uint64_t bytes) const {
  if (bytes_ == 0 || bytes == 0 || memory < region_) return -1;
  const auto begin = static_cast<std::uint64_t>(memory - region_);
  if (begin >= bytes_ || bytes > bytes_ - begin) return -1;
  const std::uint64_t piece = begin / kPiece;
  return (begin + bytes - 1) / kPiece == piece ? static_cast<int>(piece) : -1;
}

}  // namespace millpond::plugin
