// Where libmillpond.so is. The order: an explicit path, the environment variable MILLPOND_PLUGIN,
// the program's own directory, ../lib and ../<libdir> beside it, the library directory that this
// build installs to. An explicit path or a set variable is final: what is not there is an error,
// not a reason to take another file silently.
#ifndef MILLPOND_CLIENT_FIND_PLUGIN_H_
#define MILLPOND_CLIENT_FIND_PLUGIN_H_

#include <filesystem>

namespace millpond::client {

// An absolute path of an existing file. Throws Error(E_MISSING) that lists every place tried.
std::filesystem::path find_plugin(const std::filesystem::path& explicit_path = {});

}  // namespace millpond::client

#endif  // MILLPOND_CLIENT_FIND_PLUGIN_H_
