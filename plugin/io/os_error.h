// Failures of system calls as Errors, in one shape.
#ifndef MILLPOND_PLUGIN_IO_OS_ERROR_H_
#define MILLPOND_PLUGIN_IO_OS_ERROR_H_

#include <string>

#include "millpond/error.hpp"

namespace millpond::plugin {

// "EIO: Input/output error". Any thread.
std::string errno_text(int error);

// ENOSPC and EDQUOT are E_NO_SPACE, ENOENT is E_MISSING, ETIMEDOUT is E_TIMEOUT, what a path must
// not be (a symbolic link, not a directory) is E_CORRUPT, everything else E_IO.
Error os_error(const char* operation, const std::string& path, int error);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_OS_ERROR_H_
