// load_commit: what the stores of all ranks have staged becomes live everywhere, or nowhere. One
// round; where that told all ranks so, one more because their newest saves differ, and two more
// because not every saved store is taken whole by a store of its name. A rank that has failed takes
// part like the others.
#include <algorithm>
#include <sstream>

#include "plugin/store/ballot.h"
#include "plugin/store/claims.h"
#include "plugin/store/runtime.h"
#include "plugin/store/store.h"

namespace millpond::plugin {
namespace {

// The save that every bound store staged; empty on a rank without stores.
std::string staged_save(const std::vector<std::unique_ptr<Store>>& stores) {
  std::string save_id;
  for (const auto& store : stores) {
    if (!store->bound()) continue;
    if (!store->staged()) {
      throw Error(MILLPOND_E_STATE, "load_commit", "a store has nothing staged")
          .path(store->uid())
          .remedy("Call load_from with MILLPOND_IO_STAGE on every store first");
    }
    if (!save_id.empty() && store->staged()->save_id != save_id) {
      throw Error(MILLPOND_E_MISMATCH, "load_commit", "the stores staged different saves")
          .path(store->uid());
    }
    save_id = store->staged()->save_id;
  }
  return save_id;
}

// The saves that every bound store might have taken, newest first.
std::vector<std::string> possible_saves(const std::vector<std::unique_ptr<Store>>& stores) {
  for (const auto& store : stores) {
    if (store->bound()) return store->staged()->saves;  // they have one directory
  }
  return {};
}

Verdict ballot_of(const std::vector<std::unique_ptr<Store>>& stores, const Claims& claims) {
  Verdict mine;
  staged_save(stores).copy(mine.save_id, sizeof(mine.save_id) - 1);
  mine.number = claims.words();
  mine.stores = claims.whole();
  mine.saved_stores = claims.saved();
  std::string list;
  for (const std::string& id : possible_saves(stores)) {
    if (list.size() + id.size() + 1 < sizeof(mine.message)) list += id + " ";
  }
  list.copy(mine.message, sizeof(mine.message) - 1);
  return mine;
}

std::vector<Verdict> vote(Host& host, millpond_group group, const Verdict& mine,
                          const std::optional<Error>& own) {
  std::vector<Verdict> all = exchange(host, group, mine);
  if (const auto failure = judge_verdicts(all, "load_commit", own)) throw Error(*failure);
  return all;
}

// The newest save that all ranks with stores have; empty where each has staged the same. They
// differ after a kill between the renames of COMMIT.json in two node-local directories.
std::string common_save(const std::vector<Verdict>& all) {
  std::vector<const Verdict*> with_stores;
  for (const Verdict& verdict : all) {
    if (verdict.save_id[0] != '\0') with_stores.push_back(&verdict);
  }
  const auto differs = [&](const Verdict* verdict) {
    return text_of(verdict->save_id) != text_of(with_stores.front()->save_id);
  };
  const auto other = std::find_if(with_stores.begin(), with_stores.end(), differs);
  if (other == with_stores.end()) return {};
  std::istringstream list(text_of(with_stores.front()->message));
  for (std::string id; list >> id;) {
    if (std::all_of(with_stores.begin(), with_stores.end(), [&](const Verdict* verdict) {
          return text_of(verdict->message).find(id) != std::string::npos;
        })) {
      return id;
    }
  }
  throw Error(MILLPOND_E_MISMATCH, "load_commit",
              "the ranks staged different saves, " + text_of(with_stores.front()->save_id) +
                  " and " + text_of((*other)->save_id) + ", and have none in common")
      .at(static_cast<std::uint64_t>(*other - all.data()))
      .remedy("Give the save id to load_from");
}

}  // namespace

void Runtime::load_commit(millpond_group group) {
  require_group(group, "load_commit");
  try {
    std::optional<Error> own = std::exchange(load_failure_, std::nullopt);
    std::optional<Claims> claims;
    Verdict mine;
    // What a rank cannot do it tells the others, and goes on to the next round.
    const auto attempt = [&](const auto& work) {
      try {
        if (!own) work();
      } catch (const Error& error) {
        own = error;
      } catch (const std::exception& error) {
        own = Error(MILLPOND_E_INTERNAL, "load_commit", error.what());
      }
    };
    const auto cast = [&] {
      attempt([&] { mine = ballot_of(stores_, claims.emplace(stores_)); });
      if (own) put_failure(mine, *own);
      return vote(host_, group, mine, own);
    };
    attempt([&] {
      if (!suspended_) return;
      throw Error(MILLPOND_E_STATE, "load_commit", "the runtime is suspended (phase/1)");
    });
    std::vector<Verdict> all = cast();
    if (const std::string common = common_save(all); !common.empty()) {
      host_.log(MILLPOND_LOG_WARNING, "the newest saves of the ranks differ: loading " + common +
                                          ", the newest that all of them have");
      attempt([&] {
        for (const auto& store : stores_) {
          if (store->bound() && store->staged()->save_id != common) store->stage_again(common);
        }
      });
      all = cast();
    }
    std::uint64_t words = 0, whole = 0, saved = 0;
    for (const Verdict& verdict : all) {
      words = std::max(words, verdict.number);
      whole += verdict.stores;
      saved = std::max<std::uint64_t>(saved, verdict.saved_stores);
    }
    if (whole < saved) claims->settle(host_, group, words);
  } catch (const Error&) {
    for (const auto& store : stores_) store->drop_staged();
    throw;
  }
  try {
    for (const auto& store : stores_) {
      if (std::optional<StagedLoad> load = store->take_staged()) {
        store->install_load(std::move(*load));
      }
    }
  } catch (const std::exception& error) {
    poison_all(std::string("a load was installed in part: ") + error.what());
    throw;
  }
}

}  // namespace millpond::plugin
