// The checks that judge() runs, one concern each. They add to the refusals and never throw for what
// a profile holds.
#ifndef MILLPOND_PLUGIN_GUARD_CHECKS_H_
#define MILLPOND_PLUGIN_GUARD_CHECKS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "plugin/guard/profile.h"
#include "plugin/guard/refusals.h"

namespace millpond::plugin {

// Family, arithmetic variant, topology, groups.
void check_declarations(const Profile& profile, const GuardContext& context, Refusals& refusals);

// Every shard for itself: key, group, storage classes, dtypes, kind, geometry; ids; the one device.
// Returns the indices of the shards whose identity is sound enough to compare them with others.
std::vector<std::size_t> check_shards(const Profile& profile, const GuardContext& context,
                                      Refusals& refusals);

// Shards of the same parameter against each other: one description, no shared element. n log n.
void check_overlaps(const Profile& profile, std::vector<std::size_t> sound, Refusals& refusals);

// What messages call a shard: "Shard 3 (id 17)".
std::string shard_name(const Profile& profile, std::size_t index);

// "bf16", "fp8 (e4m3fn)", "fp64", "code 0, 8 bits, 1 lanes".
std::string dtype_text(millpond_dtype dtype);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_GUARD_CHECKS_H_
