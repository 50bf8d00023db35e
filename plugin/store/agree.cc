// agree: one round in which every rank tells its worst failure since the last one.
#include "plugin/store/ballot.h"
#include "plugin/store/runtime.h"
#include "plugin/store/store.h"

namespace millpond::plugin {

void Runtime::require_group(millpond_group group, const char* operation) const {
  if (group.size <= 1 || host_.has_allgather()) return;
  throw Error(MILLPOND_E_ARGUMENT, operation,
              "a group of more than one rank needs the host's allgather")
      .field("host_api.allgather")
      .want(1, group.size)
      .remedy("Give host_api.allgather at runtime_create");
}

std::optional<Error> Runtime::verdict() {
  for (const auto& store : stores_) {
    store->notice_failure();
    // A step's own words first; a store that is still poisoned is a failure whenever it is asked.
    if (store->verdict()) return store->verdict();
    if (store->poisoned()) {
      return Error(MILLPOND_E_POISONED, "agree", "poisoned: " + store->poison_reason())
          .path(store->uid());
    }
  }
  if (suspended_) {
    return Error(MILLPOND_E_STATE, "agree", "the runtime is suspended (phase/1)")
        .remedy("Call resume first");
  }
  return std::nullopt;
}

void Runtime::agree(millpond_group group) {
  require_group(group, "agree");
  const std::optional<Error> own = verdict();
  Verdict mine;
  if (own) put_failure(mine, *own);
  std::vector<Verdict> all;
  try {
    all = exchange(host_, group, mine);
  } catch (const Error& error) {
    // What the others did is not known: going on could part the ranks.
    poison_all(std::string("the ranks could not agree: ") + error.what());
    throw;
  }
  const std::optional<Error> failure = judge_verdicts(all, "agree", own);
  for (const auto& store : stores_) store->clear_verdict();
  if (!failure) return;
  poison_all(failure->what());
  throw Error(*failure);
}

}  // namespace millpond::plugin
