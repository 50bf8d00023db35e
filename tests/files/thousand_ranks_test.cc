// Checkpoints of 1,000 ranks whose files are sparse: every command works on them, with a few open
// files and in memory that is the same for three times the data.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <map>

#include "checkpoint/block_sum.h"
#include "checkpoint/commit.h"
#include "checkpoint/digest.h"
#include "checkpoint/geometry.h"
#include "tests/checkpoint/in_memory.h"
#include "tests/checkpoint/saved_training.h"
#include "tests/files/ask.h"
#include "tests/store/campaign.h"
#include "tests/store/peak_memory.h"

namespace millpond::tests {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kRanks = 1000;
constexpr std::uint64_t kFewElements = 4096, kManyElements = 3 * kFewElements;  // of a rank
constexpr std::uint64_t kOpenFiles = 256;
constexpr std::uint64_t kMost = 64u << 20, kMostMore = 8u << 20;  // bytes of memory
const char* const kSaveId = "55555555555555555555555555555555";

std::string uid_of(std::uint64_t rank) {
  char uid[32];
  std::snprintf(uid, sizeof uid, "rank%05llu/opt0_0", static_cast<unsigned long long>(rank));
  return uid;
}

// Rank r has elements [r, r + 1) * `elements` of the parameter "w"; all bytes are zero but the
// first main of each rank, which is its number.
checkpoint::StoreRecord write_rank(const fs::path& save, std::uint64_t rank,
                                   std::uint64_t elements) {
  checkpoint::Manifest manifest;
  manifest.writer = "test 1";
  manifest.uid = uid_of(rank);
  manifest.step = 7;
  manifest.block_elements = kFewElements;
  manifest.groups = {{0, "all"}};
  manifest.topology = {{"dp", static_cast<std::uint32_t>(rank), kRanks}};
  manifest.buckets.resize(1);
  manifest.buckets[0].elements = elements;
  manifest.buckets[0].moments_present = true;
  manifest.shards.resize(1);
  checkpoint::ShardRecord& shard = manifest.shards[0];
  shard.key = "w";
  shard.global_shape = shard.box_shape = {kRanks * elements};
  shard.box_offset = {0};
  shard.flat_begin = rank * elements;
  shard.flat_end = shard.flat_begin + elements;
  shard.step = 7;
  const checkpoint::BucketGeometry geometry = checkpoint::geometry_of(manifest, 0);
  manifest.buckets[0].file_bytes = geometry.file_bytes;
  manifest.buckets[0].segment_offset = geometry.offset;

  std::vector<std::byte> block(kFewElements * sizeof(float));
  const auto number = static_cast<float>(rank);
  std::vector<std::uint64_t> sums;
  for (std::uint32_t s = 0; s < 3; ++s) {
    for (std::uint64_t k = 0; k < geometry.blocks; ++k) {
      const float first = s == 0 && k == 0 ? number : 0.0F;
      std::memcpy(block.data(), &first, sizeof first);
      sums.push_back(checkpoint::block_sum(checkpoint::uid_seed(manifest.uid), 0, s, k,
                                           block.data(), block.size()));
    }
  }
  const std::string as_bytes(reinterpret_cast<const char*>(sums.data()), sums.size() * 8);
  manifest.buckets[0].sums_digest = checkpoint::digest(as_bytes);
  const fs::path store = save / manifest.uid;
  fs::create_directories(store);
  write_file(store / "bucket00000.bin",
             std::string(reinterpret_cast<const char*>(&number), sizeof number));
  fs::resize_file(store / "bucket00000.bin", geometry.file_bytes);  // a hole
  write_file(store / "bucket00000.sums", as_bytes);
  const std::string text = checkpoint::to_json(manifest);
  write_file(store / "manifest.json", text);
  return {static_cast<std::uint32_t>(rank), manifest.uid, text.size(), checkpoint::digest(text)};
}

void write_checkpoint(const fs::path& base, std::uint64_t elements) {
  checkpoint::Commit commit{kSaveId, 1, kRanks, {}};
  for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
    commit.stores.push_back(write_rank(base / kSaveId, rank, elements));
  }
  write_file(base / kSaveId / "COMMIT.json", checkpoint::to_json(commit));
}

Json layout_of(std::uint64_t elements) {
  Json stores = Json::array();
  for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
    const Json entry = {{"key", "w"},
                        {"shape", Json::array({kRanks * elements})},
                        {"begin", rank * elements},
                        {"end", (rank + 1) * elements},
                        {"group", 0}};
    stores.push_back({{"uid", uid_of(rank)},
                      {"groups", Json::array({"all"})},
                      {"buckets", Json::array({Json::array({entry})})}});
  }
  return {{"stores", stores}};
}

class ThousandRanks : public ::testing::Test {
 protected:
  ThousandRanks() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const struct rlimit few = {kOpenFiles, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~ThousandRanks() override { setrlimit(RLIMIT_NOFILE, &before_); }

  Json measured(const char* name, millpond_files_fn entry, const Json& request) {
    PeakMemory peak;
    const bool measures = peak.reset();
    Json answer = ask(entry, request, &status_);
    EXPECT_FALSE(answer.is_null()) << name << ": " << status_.text();
    if (measures) grown_[name].push_back(peak.grown());
    return answer;
  }

  void all_commands(std::uint64_t elements) {
    const TemporaryDirectory from, few, theirs, again;
    write_checkpoint(from.path(), elements);
    const std::uint64_t bytes = kRanks * elements * 12;
    Json answer = measured("inspect", files().inspect, {{"path", from.path()}});
    EXPECT_EQ(answer.at("stores").size(), kRanks);
    EXPECT_EQ(answer.at("bytes"), bytes);
    EXPECT_EQ(answer.at("parameters").size(), 1U);
    answer = measured("verify", files().verify, {{"path", from.path()}});
    EXPECT_EQ(answer.at("bytes"), bytes);
    EXPECT_EQ(answer.at("blocks"), bytes / (kFewElements * 4));
    measured("reshard", files().reshard,
             {{"path", from.path()}, {"to", few.path()}, {"world_size", 2}});
    answer = measured("diff", files().diff, {{"path", from.path()}, {"other", few.path()}});
    EXPECT_TRUE(answer.at("equal")) << answer.dump();
    EXPECT_EQ(answer.at("elements"), kRanks * elements);
    if (elements != kFewElements && !in_campaign()) return;  // the others take most of the time
    answer = measured("diff back", files().diff, {{"path", few.path()}, {"other", from.path()}});
    EXPECT_TRUE(answer.at("equal")) << answer.dump();
    const std::string layout = layout_of(elements).dump();
    measured("export", files().export_reference,
             {{"path", few.path()}, {"layout", layout}, {"to", theirs.path()}});
    measured("import", files().import_reference,
             {{"path", theirs.path()}, {"layout", layout}, {"to", again.path()}});
    answer = measured("diff all", files().diff, {{"path", from.path()}, {"other", again.path()}});
    EXPECT_TRUE(answer.at("equal")) << answer.dump();
    // What the rank's own file must have, read plainly.
    float number = 0;
    std::memcpy(&number, file_bytes(theirs.path() + "/" + uid_of(777) + "/bucket00000.bin").data(),
                sizeof number);
    EXPECT_EQ(number, 777.0F);
  }

  std::map<std::string, std::vector<std::uint64_t>> grown_;
  Status status_;
  struct rlimit before_ = {};
};

TEST_F(ThousandRanks, every_command_works_in_memory_that_does_not_grow_with_the_data) {
  const InMemory memory(1u << 30);
  all_commands(kFewElements);
  if (kSanitized || grown_.empty()) GTEST_SKIP() << "memory cannot be measured here";
  all_commands(kManyElements);
  for (const auto& [name, grown] : grown_) {
    EXPECT_LE(grown[0], kMost) << name;
    if (grown.size() < 2) continue;
    std::printf("%-10s %6.1f MiB for %llu MB of state, %6.1f MiB for %llu MB\n", name.c_str(),
                static_cast<double>(grown[0]) / (1 << 20),
                static_cast<unsigned long long>(kRanks * kFewElements * 12 / 1'000'000),
                static_cast<double>(grown[1]) / (1 << 20),
                static_cast<unsigned long long>(kRanks * kManyElements * 12 / 1'000'000));
    EXPECT_LE(grown[1], kMost) << name;
    EXPECT_LE(grown[1], grown[0] + kMostMore) << name;
  }
}

}  // namespace
}  // namespace millpond::tests
