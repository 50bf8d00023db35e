#include "plugin/store/claims.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_set>

#include "checkpoint/block_sum.h"
#include "checkpoint/saves.h"
#include "checkpoint/store_reader.h"
#include "plugin/io/posix_file_system.h"
#include "plugin/store/ballot.h"
#include "plugin/store/store.h"

namespace millpond::plugin {
namespace {

using Hashes = std::unordered_set<std::uint64_t>;

std::string kind_of_store(const std::string& uid) { return uid.substr(uid.rfind('/') + 1); }

// What is asked for: a parameter, in stores of a kind, or a store with all that is in it. What is
// told besides: that a store's files are to be seen, which on node-local directories not all do.
std::string parameter(const std::string& kind, const std::string& key) { return kind + ": " + key; }
std::string whole_store(const std::string& uid) { return "store " + uid; }
std::string sight_of(const std::string& uid) { return "sight of " + uid; }

std::uint64_t hash(const std::string& name) { return checkpoint::uid_seed(name); }  // XXH3-64

void ask_for_parameters(const Store& store, std::set<std::string>* asked) {
  const std::string kind = kind_of_store(store.uid());
  for (const Shard& shard : store.held()->profile.shards) {
    if (shard.numel() != 0) asked->insert(parameter(kind, shard.key));
  }
}

bool is_visible(checkpoint::FileSystem& fs, const checkpoint::Commit& commit,
                const checkpoint::StoreRecord& store) {
  return fs.exists(commit.save_id + "/" + store.uid);
}

// Reads the manifests that are to be seen here, one by one, of stores that nobody takes whole.
std::vector<std::string> lost_parts(checkpoint::FileSystem& fs, const checkpoint::Commit& commit,
                                    const Hashes& told) {
  std::set<std::string> lost;
  for (const checkpoint::StoreRecord& store : commit.stores) {
    if (told.contains(hash(whole_store(store.uid)))) continue;
    if (!is_visible(fs, commit, store)) {
      if (!told.contains(hash(sight_of(store.uid)))) lost.insert(whole_store(store.uid));
      continue;
    }
    const std::string kind = kind_of_store(store.uid);
    for (const auto& saved : checkpoint::read_manifest(fs, commit.save_id, store).shards) {
      if (saved.flat_begin == saved.flat_end) continue;
      const std::string name = parameter(kind, saved.key);
      if (!told.contains(hash(name))) lost.insert(name);
    }
  }
  return {lost.begin(), lost.end()};
}

}  // namespace

Claims::Claims(const std::vector<std::unique_ptr<Store>>& stores) {
  std::set<std::string> asked;
  for (const auto& store : stores) {
    if (!store->bound()) continue;
    ask_for_parameters(*store, &asked);
    if (!store->staged()) continue;
    const StagedLoad& load = *store->staged();
    path_ = load.path;
    save_id_ = load.save_id;
    saved_ = load.saved_stores;
    if (!load.whole) continue;
    ++whole_;
    asked.insert(whole_store(store->uid()));
  }
  for (const std::string& name : asked) asked_.push_back(hash(name));
}

void Claims::settle(Host& host, millpond_group group, std::uint64_t most) const {
  Verdict mine;
  std::optional<Error> own;
  // What a rank cannot do it tells the others: it takes part in both rounds.
  const auto attempt = [&](const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      if (!own) own = error;
    } catch (const std::exception& error) {
      if (!own) own = Error(MILLPOND_E_INTERNAL, "load_commit", error.what());
    }
  };
  std::unique_ptr<checkpoint::FileSystem> fs;
  std::optional<checkpoint::Commit> commit;
  std::vector<std::uint64_t> ballot = asked_;
  attempt([&] {
    if (save_id_.empty()) return;  // a rank without stores, or mains from the model
    fs = open_file_system(path_, false);
    commit = checkpoint::find_save(*fs, save_id_);
    for (const checkpoint::StoreRecord& store : commit->stores) {
      if (is_visible(*fs, *commit, store)) ballot.push_back(hash(sight_of(store.uid)));
    }
  });
  attempt([&] {
    ballot.resize(most);
    std::vector<std::uint64_t> all = ballot;
    if (group.size > 1) {
      all.resize(most * group.size);
      host.allgather(group, ballot.data(), all.data(), most * sizeof(std::uint64_t));
    }
    if (own || !commit) return;
    const std::vector<std::string> lost = lost_parts(*fs, *commit, {all.begin(), all.end()});
    if (lost.empty()) return;
    throw Error(
        MILLPOND_E_MISMATCH, "load_commit",
        "no rank has \"" + lost.front() + "\" of the checkpoint" +
            (lost.size() == 1 ? ""
                              : ", nor " + std::to_string(lost.size() - 1) + " more of its parts"))
        .field(lost.front())
        .remedy("Bind what was saved, on any rank: nothing is dropped without a word");
  });
  if (own) put_failure(mine, *own);
  const std::vector<Verdict> verdicts = exchange(host, group, mine);
  if (const auto failure = judge_verdicts(verdicts, "load_commit", own)) throw Error(*failure);
}

std::vector<std::string> left_behind(const Store& store, const StagedLoad& load,
                                     const std::vector<std::unique_ptr<Store>>& stores) {
  const auto fs = open_file_system(load.path, false);
  const checkpoint::Commit commit = checkpoint::find_save(*fs, load.save_id);
  std::set<std::string> asked;
  for (const auto& other : stores) {
    if (other->bound()) ask_for_parameters(*other, &asked);
  }
  const checkpoint::StoreRecord* const own = commit.find(store.uid());
  for (const checkpoint::StoreRecord& record : commit.stores) {
    const bool of_others = own == nullptr || record.rank != own->rank;
    if (load.whole && (of_others || &record == own)) asked.insert(whole_store(record.uid));
    asked.insert(sight_of(record.uid));
  }
  Hashes told;
  for (const std::string& name : asked) told.insert(hash(name));
  return lost_parts(*fs, commit, told);
}

}  // namespace millpond::plugin
