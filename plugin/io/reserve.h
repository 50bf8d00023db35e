// Disk space, taken before it is needed: a full disk is an error when a store is bound or a save
// begins, not in the middle of a step.
#ifndef MILLPOND_PLUGIN_IO_RESERVE_H_
#define MILLPOND_PLUGIN_IO_RESERVE_H_

#include <cstdint>
#include <string>

namespace millpond::plugin {

// What to do where a filesystem has no fallocate. kWriteZeros takes the space for certain, at the
// price of writing the file; kCheckFree compares with the free bytes and sets the size only (for
// files that are written once, where a failure later on does no harm).
enum class Without : std::uint8_t { kWriteZeros, kCheckFree };

// Makes the empty file `bytes` long and reading as zeros, its space reserved. Throws
// Error(E_NO_SPACE) with wanted = bytes and got = free bytes; the file is then empty again.
void reserve_space(int fd, std::uint64_t bytes, const std::string& path, Without without);

// Free bytes for unprivileged users on the filesystem of fd; 0 when it cannot be asked.
std::uint64_t free_bytes_of(int fd);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_RESERVE_H_
