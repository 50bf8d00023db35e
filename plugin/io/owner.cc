#include "plugin/io/owner.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "plugin/io/beneath.h"
#include "plugin/io/os_error.h"

namespace millpond::plugin {
namespace {

constexpr std::string_view kPrefix = "millpond-";
constexpr const char* kOwner = "owner";
constexpr std::size_t kRandomDigits = 16;

bool looks_ours(std::string_view name) {
  if (name.substr(0, kPrefix.size()) != kPrefix) return false;
  name.remove_prefix(kPrefix.size());
  const std::size_t dash = name.find('-');
  if (dash == 0 || dash == std::string_view::npos) return false;
  const std::string_view pid = name.substr(0, dash);
  const std::string_view random = name.substr(dash + 1);
  return random.size() == kRandomDigits &&
         std::all_of(pid.begin(), pid.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         random.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string new_name() {
  std::uint64_t random = 0;
  auto* at = reinterpret_cast<unsigned char*>(&random);
  for (std::size_t got = 0; got < sizeof random;) {
    const ssize_t n = ::getrandom(at + got, sizeof random - got, 0);
    if (n < 0 && errno != EINTR) throw os_error("getrandom", "", errno);
    if (n > 0) got += static_cast<std::size_t>(n);
  }
  std::array<char, kRandomDigits + 1> digits = {};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(random));
  return std::string(kPrefix) + std::to_string(::getpid()) + "-" + digits.data();
}

int lock_now(int fd) {
  for (;;) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

bool still_named(int fd) {
  struct stat info = {};
  return ::fstat(fd, &info) == 0 && info.st_nlink > 0;
}

// Removes what is in the directory, `owner` last, then the directory. Only with the lock held: a
// starter whose `owner` has no name any more knows that it lost.
int empty_and_remove(int root, const std::string& name, int directory) {
  std::vector<std::string> names;
  const int again = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return errno;
  int error = for_each_entry(Fd(again), [&](const char* entry, unsigned char) {
    if (std::string_view(entry) != kOwner) names.emplace_back(entry);
  });
  for (std::size_t i = 0; error == 0 && i < names.size(); ++i) {
    error = remove_entry(directory, names[i]);
  }
  if (error == 0) error = remove_entry(directory, kOwner);
  if (error != 0) return error;
  return ::unlinkat(root, name.c_str(), AT_REMOVEDIR) == 0 ? 0 : errno;
}

bool reclaim_one(int root, const std::string& name) {
  const Fd directory(::openat(root, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info = {};
  if (!directory || ::fstat(directory.get(), &info) != 0 || info.st_uid != ::geteuid()) {
    return false;
  }
  const Fd owner(
      ::openat(directory.get(), kOwner, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!owner) {
    // Its maker died, or is on its way, between mkdir and the file. An empty directory may go: a
    // maker that is alive makes another one. rmdir refuses a directory that is not empty.
    return errno == ENOENT && ::unlinkat(root, name.c_str(), AT_REMOVEDIR) == 0;
  }
  if (lock_now(owner.get()) != 0 || !still_named(owner.get())) return false;
  return empty_and_remove(root, name, directory.get()) == 0;
}

}  // namespace

OwnedDirectory make_owned_directory(int root, const std::string& root_path) {
  constexpr int kMostTries = 1000;  // each loss needs another process to start in just that moment
  for (int tries = 0; tries < kMostTries; ++tries) {
    OwnedDirectory made;
    made.name = new_name();
    if (::mkdirat(root, made.name.c_str(), 0700) != 0) {
      if (errno == EEXIST || errno == EINTR) continue;
      throw os_error("make a private directory in", root_path, errno);
    }
    made.directory =
        Fd(::openat(root, made.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (made.directory) {
      made.lock = Fd(::openat(made.directory.get(), kOwner,
                              O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    }
    if (!made.lock && (errno == ENOENT || errno == EINTR)) continue;
    int error = made.lock ? lock_now(made.lock.get()) : errno;
    if (error == EWOULDBLOCK) continue;
    if (error == 0 && !still_named(made.lock.get())) continue;
    if (error == 0 && ::fchmod(made.directory.get(), 0700) != 0) error = errno;
    if (error == 0) return made;
    if (made.directory) ::unlinkat(made.directory.get(), kOwner, 0);
    ::unlinkat(root, made.name.c_str(), AT_REMOVEDIR);
    throw os_error("lock a private directory in", root_path, error);
  }
  throw Error(MILLPOND_E_IO, "make a private directory in", "every attempt was taken away")
      .path(root_path)
      .remedy("Something removes directories named millpond-* there");
}

std::uint64_t reclaim(int root) {
  const int again = ::openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return 0;
  std::vector<std::string> names;
  for_each_entry(Fd(again), [&](const char* entry, unsigned char) {
    if (looks_ours(entry)) names.emplace_back(entry);
  });
  std::uint64_t removed = 0;
  for (const std::string& name : names) removed += reclaim_one(root, name) ? 1 : 0;
  return removed;
}

int remove_owned(int root, OwnedDirectory owned) {
  return empty_and_remove(root, owned.name, owned.directory.get());
}

}  // namespace millpond::plugin
