#include "millpond/client/find_plugin.h"

#include <stdlib.h>

#include <string>
#include <system_error>
#include <vector>

#include "millpond/error.hpp"

namespace millpond::client {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libmillpond.so";

fs::path demand(const fs::path& path, const char* named_by) {
  std::error_code code;
  fs::path whole = fs::absolute(path, code);
  const fs::file_status status = fs::status(whole, code);
  if (!fs::exists(status)) {
    throw Error(MILLPOND_E_MISSING, "find plugin",
                std::string("no such file, named by ") + named_by)
        .path(whole.string())
        .remedy("Give the path of libmillpond.so");
  }
  if (fs::is_directory(status)) {
    throw Error(MILLPOND_E_MISSING, "find plugin",
                std::string("this is a directory, named by ") + named_by)
        .path(whole.string())
        .remedy("Give the path of libmillpond.so itself");
  }
  return whole;
}

}  // namespace

fs::path find_plugin(const fs::path& explicit_path) {
  if (!explicit_path.empty()) return demand(explicit_path, "the caller");
  // Not for programs with raised privileges: they would open whatever the caller's environment
  // says.
  const char* variable = secure_getenv("MILLPOND_PLUGIN");
  if (variable != nullptr && *variable != '\0') {
    return demand(variable, "the environment variable MILLPOND_PLUGIN");
  }
  std::error_code code;
  std::vector<fs::path> places;
  const fs::path program = fs::read_symlink("/proc/self/exe", code);
  if (!code) {
    const fs::path here = program.parent_path();
    places = {here, here.parent_path() / "lib", here.parent_path() / MILLPOND_LIBDIR};
  }
  places.emplace_back(MILLPOND_FULL_LIBDIR);
  std::string tried;
  for (const fs::path& place : places) {
    fs::path candidate = (place / kName).lexically_normal();
    if (fs::is_regular_file(candidate, code)) return candidate;
    tried += (tried.empty() ? "" : ", ") + candidate.string();
  }
  throw Error(MILLPOND_E_MISSING, "find plugin", "not found; tried " + tried)
      .remedy("Set MILLPOND_PLUGIN or give the path of libmillpond.so");
}

}  // namespace millpond::client
