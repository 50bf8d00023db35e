// What ranks tell each other in a round: a fixed number of bytes, no pointers, no padding.
#ifndef MILLPOND_PLUGIN_STORE_BALLOT_H_
#define MILLPOND_PLUGIN_STORE_BALLOT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millpond/error.hpp"
#include "plugin/core/host.h"

namespace millpond::plugin {

// The head of every ballot: this rank's failure, or none.
struct Verdict {
  std::int32_t code = MILLPOND_OK;
  std::uint32_t stores = 0;
  std::uint64_t number = 0;  // the round's own: a sequence number
  std::uint32_t saved_stores = 0;
  std::uint32_t unused = 0;
  char save_id[40] = {};
  char message[448] = {};
};
static_assert(sizeof(Verdict) == 512);

// One store of a rank, in the round that decides a save.
struct StoreBallot {
  std::uint64_t manifest_bytes = 0;
  char manifest_digest[40] = {};
  char uid[136] = {};
};
static_assert(sizeof(StoreBallot) == 184);

void put_failure(Verdict& verdict, const Error& error);

// Every rank's ballot, by rank; for a group of one, without a round, one's own.
template <class Ballot>
std::vector<Ballot> exchange(Host& host, millpond_group group, const Ballot& mine) {
  if (group.size <= 1) return {mine};
  std::vector<Ballot> all(group.size);
  host.allgather(group, &mine, all.data(), sizeof(Ballot));
  return all;
}

// The first failure among all: the caller's own words where it failed itself (`own`), else
// Error(E_PEER) that names the rank and its code. None: nobody failed.
std::optional<Error> judge_verdicts(const std::vector<const Verdict*>& all, const char* operation,
                                    const std::optional<Error>& own);
std::optional<Error> judge_verdicts(const std::vector<Verdict>& all, const char* operation,
                                    const std::optional<Error>& own);

// A field of characters that another rank filled.
template <std::size_t kSize>
std::string text_of(const char (&field)[kSize]) {
  std::size_t length = 0;
  while (length < kSize && field[length] != '\0') ++length;
  return std::string(field, length);
}

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_BALLOT_H_
