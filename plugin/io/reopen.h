// An open file again under other rights. What has become final is opened for reading, so that no
// descriptor that could still write to it stays behind; what is nobody else's may be written again.
#ifndef MILLPOND_PLUGIN_IO_REOPEN_H_
#define MILLPOND_PLUGIN_IO_REOPEN_H_

#include <string>

#include "plugin/io/scratch.h"

namespace millpond::plugin {

// The same file as `fd`, O_RDONLY and O_DIRECT as it was. Where /proc is not to be had, a second
// descriptor like the first. Throws Error(E_IO).
Fd reopen_read_only(int fd, const std::string& path_for_messages);

// The same file as `fd`, O_RDWR and O_DIRECT as it was; empty where that cannot be had.
Fd reopen_read_write(int fd);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_REOPEN_H_
