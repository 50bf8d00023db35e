#include "plugin/store/claims.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_set>

#include "checkpoint/block_sum.h"
#include "checkpoint/store_reader.h"
#include "plugin/store/ballot.h"
#include "plugin/store/store.h"

namespace millpond::plugin {
namespace {

std::string kind_of_store(const std::string& uid) { return uid.substr(uid.rfind('/') + 1); }

std::string name_of(const std::string& kind, const std::string& key) { return kind + ": " + key; }

std::uint64_t hash(const std::string& name) { return checkpoint::uid_seed(name); }  // XXH3-64

std::set<std::string> keys_of(const Profile& live) {
  std::set<std::string> keys;
  for (const Shard& shard : live.shards) {
    if (shard.numel() != 0) keys.insert(shard.key);
  }
  return keys;
}

}  // namespace

std::vector<std::string> parts_of_others(checkpoint::FileSystem& fs,
                                         const checkpoint::Commit& commit, const std::string& uid,
                                         const Profile& live) {
  const std::string own = kind_of_store(uid);
  const std::set<std::string> keys = keys_of(live);
  std::set<std::string> others;
  for (const checkpoint::StoreRecord& store : commit.stores) {
    const std::string kind = kind_of_store(store.uid);
    // In node-local directories other nodes' stores are not to be seen; their ranks see them.
    if (others.contains(kind) || !fs.exists(commit.save_id + "/" + store.uid)) continue;
    for (const auto& saved : checkpoint::read_manifest(fs, commit.save_id, store).shards) {
      if (saved.flat_begin == saved.flat_end) continue;
      if (kind != own) {
        others.insert(kind);
        break;
      }
      if (!keys.contains(saved.key)) others.insert(name_of(kind, saved.key));
    }
  }
  return {others.begin(), others.end()};
}

Claims::Claims(const std::vector<std::unique_ptr<Store>>& stores) {
  std::set<std::string> asked, seen;
  for (const auto& store : stores) {
    if (!store->bound()) continue;
    const std::string kind = kind_of_store(store->uid());
    asked.insert(kind);
    for (const std::string& key : keys_of(store->held()->profile)) asked.insert(name_of(kind, key));
    if (!store->staged()) continue;
    seen.insert(store->staged()->others.begin(), store->staged()->others.end());
  }
  for (const std::string& name : asked) {
    asked_.push_back(hash(name));
    seen.erase(name);
  }
  seen_.assign(seen.begin(), seen.end());
}

void Claims::settle(Host& host, millpond_group group, std::uint64_t most) const {
  Verdict mine;
  std::optional<Error> own;
  try {
    std::vector<std::uint64_t> ballot = asked_;
    ballot.resize(most);
    std::vector<std::uint64_t> all = ballot;
    if (group.size > 1) {
      all.resize(most * group.size);
      host.allgather(group, ballot.data(), all.data(), most * sizeof(std::uint64_t));
    }
    const std::unordered_set<std::uint64_t> claimed(all.begin(), all.end());
    std::vector<std::string> lost;
    for (const std::string& name : seen_) {
      if (!claimed.contains(hash(name))) lost.push_back(name);
    }
    if (!lost.empty()) {
      own = Error(MILLPOND_E_MISMATCH, "load_commit",
                  "no rank has \"" + lost.front() + "\" of the checkpoint" +
                      (lost.size() == 1
                           ? ""
                           : ", nor " + std::to_string(lost.size() - 1) + " more of its parts"))
                .field(lost.front())
                .remedy("Bind what was saved, on any rank: nothing is dropped without a word");
    }
  } catch (const Error& error) {
    own = error;
  }
  if (own) put_failure(mine, *own);
  const std::vector<Verdict> all = exchange(host, group, mine);
  if (const auto failure = judge_verdicts(all, "load_commit", own)) throw Error(*failure);
}

}  // namespace millpond::plugin
