// Where in a checkpoint the elements of a store's shards are: in shards of the same name, of one
// rank's store or of several, cut the same way or another.
#ifndef MILLPOND_PLUGIN_STORE_SHARD_SOURCES_H_
#define MILLPOND_PLUGIN_STORE_SHARD_SOURCES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/overlap.h"
#include "checkpoint/store_reader.h"
#include "plugin/guard/profile.h"

namespace millpond::plugin {

// A shard of the checkpoint that has elements of a live one.
struct ShardSource {
  std::uint32_t store = 0;  // in ShardSources::stores()
  std::uint32_t shard = 0;  // in its manifest
  checkpoint::Part part;
};

class ShardSources {
 public:
  // Looks first into the store of the same name: where every live shard is in it as it is (key,
  // global shape, box, range, kind) nothing else is read. Otherwise all stores are looked at whose
  // name's last part is the same ("opt0_0" of every rank), for parts of the live shards that tile
  // them. Shards that several ranks hold alike are taken from one of them. Opens what is needed and
  // checks its structure. Throws Error(E_MISSING, E_MISMATCH) naming the first parameter that is
  // missing, does not fit, or is too many; Error(E_CORRUPT).
  ShardSources(checkpoint::FileSystem& fs, const checkpoint::Commit& commit, const std::string& uid,
               const Profile& live);

  const std::vector<std::unique_ptr<checkpoint::StoreReader>>& stores() const { return stores_; }
  checkpoint::StoreReader& store(const ShardSource& source) const { return *stores_[source.store]; }
  const checkpoint::ShardRecord& record(const ShardSource& source) const {
    return stores_[source.store]->manifest().shards[source.shard];
  }
  // By live shard; none for an empty one. Together they have each element once.
  const std::vector<ShardSource>& of(std::uint32_t shard) const { return sources_[shard]; }
  const checkpoint::Part& part(std::uint32_t shard) const { return parts_[shard]; }
  // Counters by live shard: those of its sources, which must agree, and of its whole group where
  // the live family counts per group. Of an empty shard: its group's.
  std::vector<std::uint64_t> counters(const Profile& live) const;
  std::uint64_t completed() const;  // steps of the store
  bool resharded() const { return resharded_; }
  // The store was saved by the same rank of the same topology: it has all that was its own.
  bool same_ranks() const { return same_ranks_; }
  std::string shown_manifest() const;  // of the first store, for messages

 private:
  bool take_same(checkpoint::FileSystem& fs, const checkpoint::Commit& commit,
                 const std::string& uid, const Profile& live);
  void gather(checkpoint::FileSystem& fs, const checkpoint::Commit& commit, const std::string& uid,
              const Profile& live);

  std::shared_ptr<checkpoint::ReadCache> cache_ = std::make_shared<checkpoint::ReadCache>();
  std::vector<std::unique_ptr<checkpoint::StoreReader>> stores_;
  std::vector<std::vector<ShardSource>> sources_;
  std::vector<checkpoint::Part> parts_;
  bool resharded_ = false;
  bool same_ranks_ = false;
  std::string base_;  // the first store's manifest, for messages
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_SHARD_SOURCES_H_
