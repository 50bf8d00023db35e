// Private directories under a shared scratch root, and whose owner is alive. The lock on the file
// `owner` inside decides, never a process id: ids are used again, and differ between containers.
#ifndef MILLPOND_PLUGIN_IO_OWNER_H_
#define MILLPOND_PLUGIN_IO_OWNER_H_

#include <cstdint>
#include <string>

#include "plugin/io/scratch.h"

namespace millpond::plugin {

struct OwnedDirectory {
  std::string name;  // "millpond-<pid>-<16 hex digits>"; the pid is for people
  Fd directory;
  Fd lock;  // holds an exclusive flock on `owner` while it is open
};

// Makes a directory of mode 0700 and locks it. Safe against reclaim() in other processes at any
// moment: a starter that lost its directory before its lock counted begins anew.
OwnedDirectory make_owned_directory(int root, const std::string& root_path);

// Removes the directories of dead owners of this user; returns how many. Entries that look
// different, belong to other users, or cannot be removed are left alone.
std::uint64_t reclaim(int root);

// Removes an owned directory with what is in it, its lock held until the end. Returns errno.
int remove_owned(int root, OwnedDirectory owned);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_OWNER_H_
