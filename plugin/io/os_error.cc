#include "plugin/io/os_error.h"

#include <cerrno>
#include <cstring>

namespace millpond::plugin {
namespace {

std::int32_t code_of(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return MILLPOND_E_NO_SPACE;
    case ENOENT:
      return MILLPOND_E_MISSING;
    case ETIMEDOUT:
      return MILLPOND_E_TIMEOUT;
    case ELOOP:
    case ENOTDIR:
    case EXDEV:
      return MILLPOND_E_CORRUPT;
    default:
      return MILLPOND_E_IO;
  }
}

const char* remedy_of(int error) {
  switch (error) {
    case ENOSPC:
      return "Free space on that filesystem, or choose another directory";
    case EDQUOT:
      return "Raise the quota, or choose another directory";
    case ELOOP:
      return "Symbolic links are not followed below the directory that was named; replace the link";
    case EACCES:
    case EPERM:
      return "Check the owner and the permissions of the path";
    case EROFS:
      return "The filesystem is mounted read-only";
    case EMFILE:
      return "Raise RLIMIT_NOFILE (ulimit -n)";
    case EIO:
      return "The drive or the filesystem failed; see the kernel's log";
    default:
      return "";
  }
}

}  // namespace

std::string errno_text(int error) {
  const char* name = strerrorname_np(error);
  const char* words = strerrordesc_np(error);
  if (name == nullptr || words == nullptr) return "error " + std::to_string(error);
  return std::string(name) + ": " + words;
}

Error os_error(const char* operation, const std::string& path, int error) {
  return Error(code_of(error), operation, errno_text(error))
      .path(path)
      .os(error)
      .remedy(remedy_of(error));
}

}  // namespace millpond::plugin
