// COMMIT.json: the file whose rename makes a save a checkpoint. It names every store of every rank
// and the digest of its manifest, and ends with a digest of its own bytes.
#ifndef MILLPOND_CHECKPOINT_COMMIT_H_
#define MILLPOND_CHECKPOINT_COMMIT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millpond::checkpoint {

inline constexpr const char* kCommitName = "COMMIT.json";
inline constexpr const char* kManifestName = "manifest.json";

struct StoreRecord {
  std::uint32_t rank = 0;
  std::string uid;
  std::uint64_t manifest_bytes = 0;
  std::string manifest_digest;
};
struct Commit {
  std::string save_id;         // 32 lower-case hexadecimal digits
  std::uint64_t sequence = 0;  // larger: newer
  std::uint32_t world_size = 0;
  std::vector<StoreRecord> stores;  // ordered by rank, then uid

  const StoreRecord* find(std::string_view uid) const;  // NULL: not in this checkpoint
};

std::string to_json(const Commit& commit);
// Throws Error(E_CORRUPT, path, at the byte); `save_id` is the directory's name and must be inside.
Commit parse_commit(std::string_view json, const std::string& path, std::string_view save_id);

// A store's name is its directory under the save id: [A-Za-z0-9_/.-], at most 128 bytes, no empty,
// "." or ".." component, and none that is a file of the format. Throws Error(E_ARGUMENT).
void check_uid(std::string_view uid);

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_COMMIT_H_
