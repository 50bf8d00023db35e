#include "plugin/store/ballot.h"

#include <algorithm>
#include <cstdio>

namespace millpond::plugin {

void put_failure(Verdict& verdict, const Error& error) {
  verdict.code = error.code() == MILLPOND_OK ? MILLPOND_E_INTERNAL : error.code();
  std::snprintf(verdict.message, sizeof(verdict.message), "%s", error.what());
}

std::optional<Error> judge_verdicts(const std::vector<const Verdict*>& all, const char* operation,
                                    const std::optional<Error>& own) {
  const auto failed = [](const Verdict* verdict) { return verdict->code != MILLPOND_OK; };
  const auto first = std::find_if(all.begin(), all.end(), failed);
  if (first == all.end()) return own;
  const auto rank = static_cast<std::uint64_t>(first - all.begin());
  const auto count = std::count_if(all.begin(), all.end(), failed);
  std::string text = "rank " + std::to_string(rank) + " of " + std::to_string(all.size()) +
                     " failed with code " + std::to_string((*first)->code);
  if (count > 1) text += " (as did " + std::to_string(count - 1) + " more)";
  text += ": " + text_of((*first)->message);
  if (own && all.size() == 1) return own;
  return Error(own ? own->code() : MILLPOND_E_PEER, operation, text).at(rank);
}

std::optional<Error> judge_verdicts(const std::vector<Verdict>& all, const char* operation,
                                    const std::optional<Error>& own) {
  std::vector<const Verdict*> verdicts;
  verdicts.reserve(all.size());
  for (const Verdict& verdict : all) verdicts.push_back(&verdict);
  return judge_verdicts(verdicts, operation, own);
}

}  // namespace millpond::plugin
