// save_begin and save_commit: what the ranks of a group do together so that a save counts on all of
// them or on none. Every rank takes every round, also one that has failed.
#include <algorithm>
#include <functional>

#include "checkpoint/digest.h"
#include "checkpoint/saves.h"
#include "plugin/io/posix_file_system.h"
#include "plugin/store/ballot.h"
#include "plugin/store/runtime.h"
#include "plugin/store/store.h"

namespace millpond::plugin {
namespace {

constexpr std::uint32_t kMaxStoresOfRank = 64;

struct WrittenBallot {
  Verdict verdict;
  StoreBallot store[kMaxStoresOfRank];
};

// What `work` throws, instead of throwing it: the rank has rounds to take.
std::optional<Error> failure_of(const char* operation, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(MILLPOND_E_INTERNAL, operation, error.what());
  }
  return std::nullopt;
}

template <std::size_t Size>
void set_field(char (&field)[Size], const std::string& text) {
  text.copy(field, Size - 1);
}

// Every store of this rank that has state, as written with this save; or the failure of one.
void collect_written(const OpenSave& save, const std::vector<std::unique_ptr<Store>>& stores,
                     WrittenBallot* ballot) {
  if (save.failure) throw Error(*save.failure);
  for (const auto& store : stores) {
    const bool written = std::any_of(save.written.begin(), save.written.end(),
                                     [&](const auto& w) { return w.uid == store->uid(); });
    if (store->streamed() != nullptr && !written) {
      throw Error(MILLPOND_E_STATE, "save_commit",
                  "store " + store->uid() + " was not saved with this id")
          .remedy("Call save_to for every store of the runtime");
    }
  }
  if (save.written.size() > kMaxStoresOfRank) {
    throw Error(MILLPOND_E_UNSUPPORTED, "save_commit", "too many stores on one rank")
        .want(kMaxStoresOfRank, save.written.size());
  }
  for (const WrittenStore& written : save.written) {
    StoreBallot& store = ballot->store[ballot->verdict.stores++];
    set_field(store.uid, written.uid);
    set_field(store.manifest_digest, written.manifest_digest);
    store.manifest_bytes = written.manifest_bytes;
  }
}

checkpoint::Commit make_commit(const OpenSave& save, const std::vector<WrittenBallot>& ranks) {
  checkpoint::Commit commit;
  commit.save_id = save.id;
  commit.sequence = save.sequence;
  commit.world_size = static_cast<std::uint32_t>(ranks.size());
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::uint32_t i = 0; i < std::min(ranks[rank].verdict.stores, kMaxStoresOfRank); ++i) {
      const StoreBallot& store = ranks[rank].store[i];
      checkpoint::StoreRecord record{rank, text_of(store.uid), store.manifest_bytes,
                                     text_of(store.manifest_digest)};
      if (const checkpoint::StoreRecord* other = commit.find(record.uid)) {
        throw Error(MILLPOND_E_ARGUMENT, "save_commit",
                    "ranks " + std::to_string(other->rank) + " and " + std::to_string(rank) +
                        " have stores of the same name, \"" + record.uid + "\"")
            .field("uid")
            .remedy("Put the rank into the store's name, like rank00001/opt0_0");
      }
      commit.stores.push_back(std::move(record));
    }
  }
  std::sort(commit.stores.begin(), commit.stores.end(), [](const auto& a, const auto& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.uid < b.uid;
  });
  return commit;
}

// Rank 0 writes the commit where it is, and in a directory that it does not share (node-local ones)
// the first rank whose stores are there. Two of them are no harm: they write the same bytes.
bool writes_commit(checkpoint::FileSystem& fs, const checkpoint::Commit& commit,
                   std::uint32_t rank) {
  if (rank == 0) return true;
  bool has_store = false;
  for (const checkpoint::StoreRecord& store : commit.stores) {
    if (store.rank == rank) has_store = true;
    if (store.rank < rank && fs.exists(commit.save_id + "/" + store.uid)) return false;
  }
  return has_store;
}

}  // namespace

std::string Runtime::save_begin(millpond_group group, const std::string& path,
                                const std::string& chosen, Leftovers leftovers) {
  require_group(group, "save_begin");
  for (const auto& store : stores_) {
    // Of a save that nobody will commit: it need not be finished.
    if (store->saving_part()) store->save_progress().cancel = true;
    store->finish_save();
  }
  if (open_save_) {
    host_.log(MILLPOND_LOG_WARNING,
              "save " + open_save_->id + " was begun and never committed: given up");
    open_save_.reset();
  }
  Verdict mine;
  std::vector<std::string> left;
  const std::optional<Error> own = failure_of("save_begin", [&] {
    if (!chosen.empty() && !checkpoint::is_hex32(chosen)) {
      throw Error(MILLPOND_E_ARGUMENT, "save_begin",
                  "a chosen save id has 32 lower-case hexadecimal digits")
          .field("save_id")
          .remedy("Zero the save id and the plugin chooses one");
    }
    const auto fs = open_file_system(path, true);
    const checkpoint::Saves saves = checkpoint::list_saves(*fs);
    if (!saves.committed.empty()) mine.number = saves.committed.front().sequence;
    for (const checkpoint::Commit& older : saves.committed) {
      if (older.save_id != chosen) continue;
      throw Error(MILLPOND_E_ARGUMENT, "save_begin", path + " has a save of the chosen id already")
          .field("save_id")
          .remedy("Choose 128 random bits anew for every save");
    }
    if (!saves.uncommitted.empty()) {
      host_.log(MILLPOND_LOG_INFO, "removing " + std::to_string(saves.uncommitted.size()) +
                                       " unfinished save(s) from " + path);
    }
    if (leftovers == Leftovers::kNow) {
      checkpoint::remove_leftovers(*fs, saves.uncommitted);
    } else {
      left = saves.uncommitted;
    }
    set_field(mine.save_id, chosen.empty() ? checkpoint::make_save_id() : chosen);
  });
  if (own) put_failure(mine, *own);
  const std::vector<Verdict> all = exchange(host_, group, mine);
  if (const auto failed = judge_verdicts(all, "save_begin", own)) throw Error(*failed);

  OpenSave save;
  save.path = path;
  save.id = text_of(all[0].save_id);
  save.group = group;
  save.leftovers = std::move(left);
  for (const Verdict& word : all) save.sequence = std::max(save.sequence, word.number + 1);
  open_save_ = std::move(save);
  return open_save_->id;
}

void Runtime::save_commit(millpond_group group, const std::string& save_id) {
  require_group(group, "save_commit");
  for (const auto& store : stores_) store->finish_save();
  // Whatever happens, the save is not open any more.
  const std::optional<OpenSave> save = std::exchange(open_save_, std::nullopt);
  WrittenBallot mine;
  std::unique_ptr<checkpoint::FileSystem> fs;
  std::optional<Error> own = failure_of("save_commit", [&] {
    if (!save || save->id != save_id) {
      throw Error(MILLPOND_E_STATE, "save_commit", "no save of this id has been begun")
          .field("save_id");
    }
    fs = open_file_system(save->path, true);
    collect_written(*save, stores_, &mine);
  });
  if (own) put_failure(mine.verdict, *own);

  // Round 1: every rank's files are durable, or nobody commits.
  bool writer = false;
  const std::optional<Error> verdict = failure_of("save_commit", [&] {
    const std::vector<WrittenBallot> all = exchange(host_, group, mine);
    std::vector<const Verdict*> verdicts;
    verdicts.reserve(all.size());
    for (const WrittenBallot& ballot : all) verdicts.push_back(&ballot.verdict);
    if (const auto failed = judge_verdicts(verdicts, "save_commit", own)) throw Error(*failed);
    const checkpoint::Commit commit = make_commit(*save, all);
    fs->make_directories(save_id);
    writer = writes_commit(*fs, commit, group.rank);
    if (writer) checkpoint::write_commit(*fs, commit, group.rank);
  });

  // Round 2: the commit is durable wherever it has to be. Where this round itself fails, what the
  // others know is not known here: nothing is removed, neither the new save nor the older one.
  Verdict confirmation;
  if (verdict) put_failure(confirmation, *verdict);
  const std::vector<Verdict> confirmed = exchange(host_, group, confirmation);
  const auto tidy = [&](const char* what, const std::function<void()>& work) {
    if (const auto left = failure_of("save_commit", work)) {
      host_.log(MILLPOND_LOG_WARNING, std::string(what) + ": " + left->what());
    }
  };
  if (const auto failed = judge_verdicts(confirmed, "save_commit", verdict)) {
    if (fs != nullptr && save) {
      tidy("removing a failed save", [&] { checkpoint::abandon(*fs, save->id); });
    }
    throw Error(*failed);
  }
  if (writer) tidy("removing older saves", [&] { checkpoint::remove_others(*fs, save_id); });
}

}  // namespace millpond::plugin
