// Names below a directory, resolved so that nothing outside of it can be reached: no "..", no
// absolute paths, no symbolic links, on the way or at the end.
#ifndef MILLPOND_PLUGIN_IO_BENEATH_H_
#define MILLPOND_PLUGIN_IO_BENEATH_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "plugin/io/scratch.h"

namespace millpond::plugin {

// Throws Error(E_ARGUMENT) unless `path` is relative, without empty, "." and ".." parts and NULs.
// The empty path names the directory itself.
void check_relative(std::string_view path);

// open(2) of `path` beneath `directory`; O_NOFOLLOW and O_CLOEXEC are added. -1 and errno on
// failure; a symbolic link anywhere gives ELOOP.
int open_beneath(int directory, const std::string& path, int flags, mode_t mode = 0);

// The two ways behind open_beneath: the kernel's own (openat2, Linux 5.6) and, where a sandbox or
// an older kernel refuses that, part by part. Separate for tests.
int open_beneath_kernel(int directory, const std::string& path, int flags, mode_t mode);
int open_beneath_walk(int directory, const std::string& path, int flags, mode_t mode);

// Calls visit(name, d_type) for each entry but "." and "..". Returns errno, 0 when done. Takes the
// descriptor.
int for_each_entry(Fd directory, const std::function<void(const char*, unsigned char)>& visit);

// Removes the entry `name` of `directory`, with everything below it when it is a directory. An
// absent one is fine. Returns errno, 0 when done.
int remove_entry(int directory, const std::string& name);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_BENEATH_H_
