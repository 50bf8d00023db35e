#include "plugin/pipeline/region.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "kernels/storage.h"
#include "millpond/base.h"
#include "millpond/error.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kHugePage = 2 << 20;
constexpr std::uint64_t kTouchBytes = 16 << 20;  // by one body of the pool

// Page faults of one chunk, as an errno. Kernels before 5.14 do not know MADV_POPULATE_WRITE: there
// a byte of each page is written, and a machine without memory answers with a signal.
int touch(std::byte* begin, std::uint64_t bytes) {
  for (;;) {
    if (madvise(begin, bytes, MADV_POPULATE_WRITE) == 0) return 0;
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return errno;
    break;
  }
  for (std::uint64_t at = 0; at < bytes; at += kernels::kPageBytes) {
    *reinterpret_cast<volatile std::byte*>(begin + at) = std::byte{0};
  }
  return 0;
}

Error refused(std::uint64_t bytes, int error) {
  return Error(MILLPOND_E_MEMORY, "map the host tier", "the system refused the memory")
      .field("options.host_memory_bytes")
      .want(bytes, kNoValue)
      .os(error)
      .remedy("Set host_memory_bytes lower, or free memory on this node.");
}

}  // namespace

void Region::map(std::uint64_t bytes, ThreadPool& pool, RegionPin* pin) {
  unmap();
  if (bytes == 0) return;
  // Aligned to a huge page by mapping more and giving both ends back.
  const std::uint64_t reach = bytes + kHugePage;
  void* const whole =
      mmap(nullptr, reach, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) throw refused(bytes, errno);
  const auto address = reinterpret_cast<std::uint64_t>(whole);
  const std::uint64_t head = kernels::round_up(address, kHugePage) - address;
  data_ = static_cast<std::byte*>(whole) + head;
  bytes_ = bytes;
  if (head != 0) munmap(whole, head);
  if (reach - head != bytes) munmap(data_ + bytes, reach - head - bytes);

  madvise(data_, bytes_, MADV_HUGEPAGE);  // a kernel without huge pages works too
  if (madvise(data_, bytes_, MADV_DONTDUMP) != 0 || madvise(data_, bytes_, MADV_DONTFORK) != 0) {
    const int error = errno;
    unmap();
    throw refused(bytes, error);
  }
  if (pin != nullptr) pin->prepare(data_, bytes_);
  std::atomic<int> failure{0};
  const std::uint64_t chunks = (bytes_ + kTouchBytes - 1) / kTouchBytes;
  pool.run(chunks, [&](std::uint64_t i) {
    const std::uint64_t begin = i * kTouchBytes;
    const int error = touch(data_ + begin, std::min(kTouchBytes, bytes_ - begin));
    if (error != 0) failure.store(error, std::memory_order_relaxed);
  });
  if (failure.load() != 0) {
    unmap();
    throw refused(bytes, failure.load());
  }
}

void Region::unmap() noexcept {
  if (data_ != nullptr) munmap(data_, bytes_);
  leak();
}

void Region::leak() noexcept {
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace millpond::plugin
