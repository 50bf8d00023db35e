// A file that has become final: opened again for reading, so that no descriptor that could still
// write to it stays behind.
#ifndef MILLPOND_PLUGIN_IO_READ_ONLY_H_
#define MILLPOND_PLUGIN_IO_READ_ONLY_H_

#include <string>

#include "plugin/io/scratch.h"

namespace millpond::plugin {

// The same file as `fd`, O_RDONLY and O_DIRECT as it was. Where /proc is not to be had, a second
// descriptor like the first. Throws Error(E_IO).
Fd reopen_read_only(int fd, const std::string& path_for_messages);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_READ_ONLY_H_
