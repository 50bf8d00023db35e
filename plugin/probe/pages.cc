#include "plugin/probe/pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "kernels/storage.h"
#include "millpond/error.hpp"

namespace millpond::plugin {

Pages::Pages(std::uint64_t bytes) : bytes_(kernels::round_up(bytes, 2 << 20)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(MILLPOND_E_MEMORY, "mmap", "the probe's memory cannot be had")
        .want(bytes_, 0)
        .os(errno)
        .remedy("Ask for a smaller probe.");
  }
  madvise(memory, bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(memory);
}

Pages::~Pages() { munmap(data_, bytes_); }

void Pages::fill_noise() {
  for (std::uint64_t i = 0; i < bytes_; i += 8) {
    // SplitMix64 of the place: no word waits for the one before.
    std::uint64_t mix = (i + 8) * 0x9e3779b97f4a7c15ull;
    mix = (mix ^ (mix >> 30)) * 0xbf58476d1ce4e5b9ull;
    mix = (mix ^ (mix >> 27)) * 0x94d049bb133111ebull;
    mix ^= mix >> 31;
    // Exponent bits of both halves at 0x3c..: values around 0.01.
    const std::uint64_t word = (mix & 0x80ff00ff80ff00ffull) | 0x3c003c003c003c00ull;
    std::memcpy(data_ + i, &word, 8);
  }
}

}  // namespace millpond::plugin
