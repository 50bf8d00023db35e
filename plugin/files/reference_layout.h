// What the reference implementation's checkpoints do not say of themselves: which shard is which
// entry of which file. It follows from the host's layout and is given as JSON:
//
//   {"stores": [{"uid": "rank00000/opt0_0", "groups": ["decay", "no_decay"],
//     "buckets": [[{"key": "w", "shape": [5, 17], "begin": 0, "end": 85, "group": 0}, ...], ...]}]}
//
// Buckets and entries in file order; [begin, end) of the whole parameter in row-major order; group
// is an index of groups. The layout of the files themselves: each entry of each segment (main,
// exp_avg, exp_avg_sq), one after another, padded with zeros to whole pages of 4096 bytes.
#ifndef MILLPOND_PLUGIN_FILES_REFERENCE_LAYOUT_H_
#define MILLPOND_PLUGIN_FILES_REFERENCE_LAYOUT_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/storage.h"
#include "plugin/guard/profile.h"
#include "plugin/layout/plan.h"

namespace millpond::plugin {

struct ReferenceStore {
  std::string uid;
  Profile profile;                                  // shards in file order, host_bucket = bucket
  std::vector<std::vector<std::uint32_t>> entries;  // by bucket: shard indices
};

// Throws Error(E_ARGUMENT), field "request.layout", with what is wrong and where.
std::vector<ReferenceStore> read_reference_layout(const std::string& json);

using ReferenceStorage = std::array<kernels::Storage, kSegments>;

// "torch.float32", "torch.bfloat16". Throws Error(E_UNSUPPORTED) for a format that one of both does
// not have.
std::string torch_name(kernels::Storage storage);
kernels::Storage from_torch_name(const std::string& name, const std::string& path);

// Bytes in a bucket's file: where entry `entry` of a segment begins; entry count and beyond: ends.
std::uint64_t reference_offset(const ReferenceStore& store, std::uint32_t bucket,
                               const ReferenceStorage& storage, std::uint32_t segment,
                               std::size_t entry);
std::uint64_t reference_bytes(const ReferenceStore& store, std::uint32_t bucket,
                              const ReferenceStorage& storage);
// Indices of the groups that have an entry in the bucket, ascending.
std::vector<std::uint64_t> groups_of(const ReferenceStore& store, std::uint32_t bucket);
// The rank in "rank00003/opt0_0"; 0 where the name says none.
std::uint32_t rank_of(const std::string& uid);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_FILES_REFERENCE_LAYOUT_H_
