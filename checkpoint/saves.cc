#include "checkpoint/saves.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "checkpoint/digest.h"
#include "millpond/error.hpp"

namespace millpond::checkpoint {
namespace {

constexpr std::uint64_t kMaxCommitBytes = 256ull << 20;

std::string commit_path(const std::string& save_id) { return save_id + "/" + kCommitName; }

std::vector<std::string> save_ids(FileSystem& fs) {
  std::vector<std::string> ids;
  for (const Entry& entry : fs.list("")) {
    if (entry.kind == Entry::Kind::kDirectory && is_hex32(entry.name)) ids.push_back(entry.name);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

Commit read_commit(FileSystem& fs, const std::string& save_id) {
  const std::string path = commit_path(save_id);
  return parse_commit(read_text(fs, path, kMaxCommitBytes), fs.shown(path), save_id);
}

}  // namespace

std::string make_save_id() {
  unsigned char bits[16];
  std::size_t have = 0;
  while (have < sizeof bits) {
    const ssize_t got = getrandom(bits + have, sizeof bits - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(MILLPOND_E_IO, "getrandom", "no random bits for a save id").os(errno);
    have += static_cast<std::size_t>(got);
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (const unsigned char byte : bits) {
    id += kDigits[byte >> 4];
    id += kDigits[byte & 15];
  }
  return id;
}

std::string read_text(FileSystem& fs, const std::string& path, std::uint64_t most) {
  const std::unique_ptr<File> file = fs.open(path);
  const std::uint64_t size = file->size();
  if (size > most) {
    throw Error(MILLPOND_E_CORRUPT, "read", "the file is longer than it can be")
        .path(fs.shown(path))
        .at(most)
        .want(most, size);
  }
  std::string text(size, '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void replace_file(FileSystem& fs, const std::string& path, std::string_view text,
                  const std::string& tag) {
  const std::string temporary = path + tag;
  {
    const std::unique_ptr<File> file = fs.create(temporary, text.size());
    file->write(0, std::as_bytes(std::span(text)));
    file->sync();
  }
  fs.rename(temporary, path);
  const std::size_t slash = path.rfind('/');
  fs.sync_directory(slash == std::string::npos ? "" : path.substr(0, slash));
}

Saves list_saves(FileSystem& fs) {
  Saves saves;
  for (const std::string& id : save_ids(fs)) {
    if (!fs.exists(commit_path(id))) {
      saves.uncommitted.push_back(id);
      continue;
    }
    try {
      saves.committed.push_back(read_commit(fs, id));
    } catch (const Error& error) {
      saves.unreadable.push_back(error.what());
    }
  }
  std::sort(saves.committed.begin(), saves.committed.end(), [](const Commit& a, const Commit& b) {
    return a.sequence != b.sequence ? a.sequence > b.sequence : a.save_id < b.save_id;
  });
  return saves;
}

Commit find_save(FileSystem& fs, const std::string& save_id) {
  if (!save_id.empty()) {
    if (!is_hex32(save_id)) {
      throw Error(MILLPOND_E_ARGUMENT, "load", "a save id has 32 lower-case hexadecimal digits")
          .field("save_id");
    }
    if (!fs.exists(commit_path(save_id))) {
      throw Error(MILLPOND_E_MISSING, "load", "no such committed save is in the directory")
          .path(fs.shown(commit_path(save_id)));
    }
    return read_commit(fs, save_id);
  }
  const Saves saves = list_saves(fs);
  if (!saves.unreadable.empty()) {
    throw Error(MILLPOND_E_CORRUPT, "load",
                "a save in the directory is damaged: " + saves.unreadable.front())
        .remedy("Name another save id, or remove the damaged save's directory");
  }
  if (saves.committed.empty()) {
    throw Error(MILLPOND_E_MISSING, "load",
                saves.uncommitted.empty()
                    ? "the directory has no save"
                    : "the directory has no committed save, only an attempt that did not finish")
        .path(fs.shown(saves.uncommitted.empty() ? "" : commit_path(saves.uncommitted.front())))
        .remedy("Name the directory that holds <save id>/COMMIT.json");
  }
  if (saves.committed.size() > 1 && saves.committed[0].sequence == saves.committed[1].sequence) {
    throw Error(MILLPOND_E_CORRUPT, "load",
                "two saves have the same sequence number: " + saves.committed[0].save_id + " and " +
                    saves.committed[1].save_id)
        .path(fs.shown(""))
        .remedy("Name the save id to load");
  }
  return saves.committed.front();
}

void remove_leftovers(FileSystem& fs, const std::vector<std::string>& uncommitted) {
  for (const std::string& id : uncommitted) {
    if (!fs.exists(commit_path(id))) fs.remove_tree(id);
  }
}

void write_commit(FileSystem& fs, const Commit& commit, std::uint32_t rank) {
  replace_file(fs, commit_path(commit.save_id), to_json(commit), ".tmp" + std::to_string(rank));
  fs.sync_directory("");
}

void abandon(FileSystem& fs, const std::string& save_id) {
  if (fs.exists(commit_path(save_id))) {
    try {
      fs.rename(commit_path(save_id), save_id + "/abandoned.json");
      fs.sync_directory(save_id);
    } catch (const Error&) {
      if (fs.exists(commit_path(save_id))) throw;  // else another rank was faster
    }
  }
  fs.remove_tree(save_id);
}

void remove_others(FileSystem& fs, const std::string& save_id) {
  for (const std::string& id : save_ids(fs)) {
    if (id != save_id) fs.remove_tree(id);
  }
}

}  // namespace millpond::checkpoint
