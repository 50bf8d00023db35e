// Transfers by the calling thread, without an engine: all bytes, or an Error. What EINTR or a short
// count cuts is continued, from a whole page where everything is page-aligned (O_DIRECT).
#ifndef MILLPOND_PLUGIN_IO_WHOLE_TRANSFER_H_
#define MILLPOND_PLUGIN_IO_WHOLE_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace millpond::plugin {

// Throw Error(E_IO, E_NO_SPACE) with `path`, offset, wanted, got.
void read_whole(int fd, std::uint64_t offset, std::span<std::byte> bytes, const std::string& path);
void write_whole(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                 const std::string& path);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_WHOLE_TRANSFER_H_
