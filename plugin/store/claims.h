// Parameters of a checkpoint that nobody asks for. A rank that loads the checkpoint of another set
// of ranks sees parameters that it has no part of: whether another rank has is known only to all
// together. Without this they would be dropped without a word.
#ifndef MILLPOND_PLUGIN_STORE_CLAIMS_H_
#define MILLPOND_PLUGIN_STORE_CLAIMS_H_

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/commit.h"
#include "checkpoint/file_system.h"
#include "plugin/core/host.h"
#include "plugin/guard/profile.h"

namespace millpond::plugin {

class Store;

// Kinds of stores ("opt0_1", the last part of a name) and parameters ("opt0_0: embed.weight") of
// the save of which the store `uid` with the shards `live` has no element, sorted. Reads the
// manifests that are in this directory, one by one. Throws Error(E_CORRUPT).
std::vector<std::string> parts_of_others(checkpoint::FileSystem& fs,
                                         const checkpoint::Commit& commit, const std::string& uid,
                                         const Profile& live);

// What all ranks of the group tell each other in load_commit where any of them saw such parts.
class Claims {
 public:
  explicit Claims(const std::vector<std::unique_ptr<Store>>& stores);
  std::uint64_t asked() const { return asked_.size(); }
  bool sees_others() const { return !seen_.empty(); }
  // Two rounds on every rank. `most`: the largest asked() of any rank. Throws Error(E_MISMATCH), on
  // every rank, where a part that some rank saw was asked for by none; E_PEER on ranks that did not
  // see it.
  void settle(Host& host, millpond_group group, std::uint64_t most) const;

 private:
  std::vector<std::uint64_t> asked_;  // hashes of names, as those of parts_of_others
  std::vector<std::string> seen_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_CLAIMS_H_
