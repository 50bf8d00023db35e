// A small store with known bytes, and how a save and a load of it go, for the tests of this folder.
// Its contents are made and compared by plain loops here, not by the code under test.
#ifndef MILLPOND_TESTS_CHECKPOINT_SAMPLE_STORE_H_
#define MILLPOND_TESTS_CHECKPOINT_SAMPLE_STORE_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/commit.h"
#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"

namespace millpond::checkpoint::testing {

inline constexpr const char* kUid = "rank00000/opt0_0";
inline constexpr const char* kOldId = "0123456789abcdef0123456789abcdef";
inline constexpr const char* kNewId = "fedcba9876543210fedcba9876543210";

struct SampleStore {
  Manifest manifest;
  // Stored bytes of bucket b, segment s; empty where the segment is not in the file.
  std::vector<std::array<std::vector<std::byte>, 3>> bytes;
};

// Three buckets: mains with moments (two blocks and a half), mains without, moments only; fp32
// mains, bf16 moments; keys with quotes and non-ASCII letters, an empty shard, two groups.
SampleStore sample_store(std::uint64_t seed);

// One store, one rank: everything up to the manifest, and the record for the commit.
StoreRecord write_store(FileSystem& fs, const std::string& save_id, const SampleStore& store);
// The whole of a save as the plugin does it: leftovers, store, commit, the older saves go.
// `committed` is set as soon as the commit was reported.
void save(FileSystem& fs, const std::string& save_id, const SampleStore& store,
          bool* committed = nullptr);
// The newest save, everything checked, in the form of a SampleStore. Throws Error.
SampleStore load(FileSystem& fs, const std::string& save_id = "");

bool same(const SampleStore& a, const SampleStore& b);

}  // namespace millpond::checkpoint::testing

#endif  // MILLPOND_TESTS_CHECKPOINT_SAMPLE_STORE_H_
