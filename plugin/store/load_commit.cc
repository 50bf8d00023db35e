// load_commit: what the stores of all ranks have staged becomes live everywhere, or nowhere. One
// round; a rank that has failed takes part like the others.
#include "plugin/store/ballot.h"
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

// All ranks that have stores staged one and the same save.
void check_same(const std::vector<Verdict>& all) {
  std::string first;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string id = text_of(all[rank].save_id);
    if (id.empty()) continue;
    if (first.empty()) first = id;
    if (id == first) continue;
    throw Error(MILLPOND_E_MISMATCH, "load_commit",
                "the ranks staged different saves: " + first + " and " + id)
        .at(rank)
        .remedy("Give the save id to load_from");
  }
}

}  // namespace

void Runtime::load_commit(millpond_group group) {
  require_group(group, "load_commit");
  Verdict mine;
  std::optional<Error> own = std::exchange(load_failure_, std::nullopt);
  try {
    if (!own && suspended_) {
      own = Error(MILLPOND_E_STATE, "load_commit", "the runtime is suspended (phase/1)");
    }
    if (!own) staged_save(stores_).copy(mine.save_id, sizeof(mine.save_id) - 1);
  } catch (const Error& error) {
    own = error;
  }
  if (own) put_failure(mine, *own);
  try {
    const std::vector<Verdict> all = exchange(host_, group, mine);
    std::vector<const Verdict*> verdicts;
    for (const Verdict& verdict : all) verdicts.push_back(&verdict);
    if (const auto failure = judge_verdicts(verdicts, "load_commit", own)) throw Error(*failure);
    check_same(all);
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
