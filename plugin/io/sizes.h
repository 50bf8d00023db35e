// Sizes that every way to move bytes shares.
#ifndef MILLPOND_PLUGIN_IO_SIZES_H_
#define MILLPOND_PLUGIN_IO_SIZES_H_

#include <cstdint>

namespace millpond::plugin {

// Bytes; offsets, counts and memory of O_DIRECT transfers are multiples of it.
inline constexpr std::uint64_t kPage = 4096;
// Bytes asked of one system call: Linux moves at most 2^31 - 4096 of them (read(2)).
inline constexpr std::uint64_t kMostAtOnce = 1ull << 30;

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_SIZES_H_
