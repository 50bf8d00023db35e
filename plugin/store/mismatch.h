// What is told of a checkpoint that does not fit a store, by the first thing that does not.
#ifndef MILLPOND_PLUGIN_STORE_MISMATCH_H_
#define MILLPOND_PLUGIN_STORE_MISMATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/commit.h"
#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "millpond/error.hpp"
#include "plugin/guard/profile.h"
#include "plugin/layout/plan.h"

namespace millpond::plugin {

ShardKind kind_of(const checkpoint::ShardRecord& record);
// The shards of a manifest as a profile has them.
Profile shards_of(const checkpoint::Manifest& manifest);

// `taken`: indices of the manifest's shards that the store has. Throws Error(E_MISMATCH) for one
// that it has not.
void refuse_extra(const checkpoint::Manifest& manifest, const std::vector<std::uint32_t>& taken,
                  const std::string& path);
// A live shard of which only `found` elements were found. `unfit`: a record of the same name with
// another shape or kind.
Error not_covered(const Shard& live, std::uint64_t found,
                  const std::optional<checkpoint::ShardRecord>& unfit, const std::string& path);
Error no_such_store(const checkpoint::FileSystem& fs, const checkpoint::Commit& commit,
                    const std::string& uid);
// Throws Error(E_MISMATCH) unless the formats are the same or `convert` is set.
void check_storage(const checkpoint::Manifest& manifest, const LayoutOptions& live, bool convert,
                   const std::string& path);
// Throws Error(E_MISMATCH) where a group that counts as one has shards with different counters.
void require_group_counters(const Profile& live, const std::vector<std::uint64_t>& steps,
                            const std::string& path);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_MISMATCH_H_
