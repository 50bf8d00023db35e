// Parts of a checkpoint that nobody asks for. Whether a parameter that one rank has no part of is
// another rank's, and whether a store that is gone on one has come to another, is known only to all
// together. Without this they would be dropped without a word.
#ifndef MILLPOND_PLUGIN_STORE_CLAIMS_H_
#define MILLPOND_PLUGIN_STORE_CLAIMS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugin/core/host.h"

namespace millpond::plugin {

class Store;
struct StagedLoad;

// What all ranks of the group tell each other in load_commit.
class Claims {
 public:
  // Of the bound stores, and of what they have staged.
  explicit Claims(const std::vector<std::unique_ptr<Store>>& stores);

  // Staged stores that take the whole of the saved one of their name; stores of the save. Where the
  // first are as many on all ranks together as the second, everything is asked for.
  std::uint32_t whole() const { return whole_; }
  std::uint32_t saved() const { return saved_; }
  // Words that settle() tells the others at most.
  std::uint64_t words() const { return asked_.size() + saved_; }

  // Two rounds on every rank. `most`: the largest words() of any rank. Throws Error(E_MISMATCH) on
  // ranks that see a parameter or a store of the save for which none asks; E_PEER on the others.
  void settle(Host& host, millpond_group group, std::uint64_t most) const;

 private:
  std::vector<std::uint64_t> asked_;  // hashes of names
  std::uint32_t whole_ = 0;
  std::uint32_t saved_ = 0;
  std::string path_, save_id_;  // of what is staged
};

// Parts of a save that `store`, which loads it alone, leaves: names like "opt0_0: embed.weight". Of
// a save by the same ranks only those of its own rank; what other bound stores ask for is no loss.
std::vector<std::string> left_behind(const Store& store, const StagedLoad& load,
                                     const std::vector<std::unique_ptr<Store>>& stores);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_CLAIMS_H_
