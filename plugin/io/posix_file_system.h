// checkpoint::FileSystem on system calls.
#ifndef MILLPOND_PLUGIN_IO_POSIX_FILE_SYSTEM_H_
#define MILLPOND_PLUGIN_IO_POSIX_FILE_SYSTEM_H_

#include <memory>
#include <string>

#include "checkpoint/file_system.h"

namespace millpond::plugin {

// Everything below `base`, and nothing else: names are resolved by the kernel with
// RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS. `base` itself is the host's word and may be or pass
// through a symbolic link. create: make it, with its parents, durably; otherwise an absent base
// throws Error(E_MISSING). Modes are 0666 and 0777 less the process's umask.
//   create(): a new file, `reserve_bytes` long at once, its space reserved where the filesystem
//   can. One of that name that was there is unlinked, never written into: it may be linked
//   elsewhere.
//   make_directories(): what it makes is durable when it returns.
// Safe for use by several threads; each File by one at a time.
std::unique_ptr<checkpoint::FileSystem> open_file_system(const std::string& base, bool create);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_POSIX_FILE_SYSTEM_H_
