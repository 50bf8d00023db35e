// The base directory of a checkpoint: which saves are in it, which of them count, and how one comes
// to count. `fs` stands on the base directory.
#ifndef MILLPOND_CHECKPOINT_SAVES_H_
#define MILLPOND_CHECKPOINT_SAVES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/commit.h"
#include "checkpoint/file_system.h"

namespace millpond::checkpoint {

// 128 random bits as 32 hexadecimal digits.
std::string make_save_id();

// A whole file as text. Throws Error(E_CORRUPT) where it is longer than `most` bytes.
std::string read_text(FileSystem& fs, const std::string& path, std::uint64_t most);
// Creates or replaces `path` durably: a temporary beside it (its name ends in `tag`), fsync,
// rename, fsync of the directory.
void replace_file(FileSystem& fs, const std::string& path, std::string_view text,
                  const std::string& tag);

struct Saves {
  std::vector<Commit> committed;         // newest first
  std::vector<std::string> unreadable;   // have a COMMIT.json that is none: "<path>: <why>"
  std::vector<std::string> uncommitted;  // save ids: attempts under way, or left by a killed one
};
Saves list_saves(FileSystem& fs);

// The save to load: `save_id`, or the newest where that is empty. Throws Error(E_MISSING) when
// there is none, Error(E_CORRUPT) when one is damaged, so that an older one is never taken for a
// newer one unasked.
Commit find_save(FileSystem& fs, const std::string& save_id);

// Removes what killed attempts left: `uncommitted` of list_saves, but for those that have a
// COMMIT.json. Nobody may be saving into these.
void remove_leftovers(FileSystem& fs, const std::vector<std::string>& uncommitted);

// The switch: COMMIT.json appears in the save id's directory, durably. Several ranks of one
// directory may do this with the same contents.
void write_commit(FileSystem& fs, const Commit& commit, std::uint32_t rank);
// Takes a save back that must not count: its COMMIT.json goes first, durably, then the rest.
// Several ranks of one directory may do this at once.
void abandon(FileSystem& fs, const std::string& save_id);
// Every other save goes, once this one is known to count everywhere.
void remove_others(FileSystem& fs, const std::string& save_id);

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_SAVES_H_
