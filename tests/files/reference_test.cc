// The reference implementation's checkpoint comes in with every value bit by bit, and goes out
// again byte by byte.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "checkpoint/commit.h"
#include "checkpoint/saves.h"
#include "checkpoint/store_reader.h"
#include "plugin/io/posix_file_system.h"
#include "tests/checkpoint/saved_training.h"
#include "tests/files/ask.h"

namespace millpond::tests {
namespace {

const std::filesystem::path kReference = MILLPOND_REFERENCE;

// A one-dimensional fp32 array of numpy's format 1.0.
std::vector<float> npy(const std::filesystem::path& path) {
  const std::string bytes = file_bytes(path);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const std::size_t header =
      static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  EXPECT_NE(bytes.substr(10, header).find("'<f4'"), std::string::npos);
  std::vector<float> values((bytes.size() - 10 - header) / 4);
  std::memcpy(values.data(), bytes.data() + 10 + header, values.size() * 4);
  return values;
}

class Reference : public ::testing::Test {
 protected:
  Json import(const std::string& layout) {
    return ask(files().import_reference,
               {{"path", (kReference / "nvme_opt_state").string()},
                {"layout", layout},
                {"to", ours_.path()}},
               &status_);
  }
  std::string layout() const { return file_bytes(kReference / "layout.json"); }
  TemporaryDirectory ours_, theirs_;
  Status status_;
};

TEST_F(Reference, import_has_every_value_bit_by_bit) {
  const Json answer = import(layout());
  ASSERT_FALSE(answer.is_null()) << status_.text();
  EXPECT_EQ(answer.at("world_size"), 2);
  // Values straight from our files: fp32 without scales, at the manifest's places.
  const auto fs = plugin::open_file_system(ours_.path(), false);
  const checkpoint::Commit commit = checkpoint::find_save(*fs, "");
  const char* segments[] = {"main", "exp_avg", "exp_avg_sq"};
  std::map<std::string, std::vector<float>> expected;
  std::uint64_t pairs = 0;
  for (const Json& shard : Json::parse(file_bytes(kReference / "expected.json"))) {
    const std::string uid = shard.at("optimizer");
    checkpoint::StoreReader reader(*fs, commit.save_id, *commit.find(uid));
    for (std::uint32_t i = 0; i < reader.manifest().shards.size(); ++i) {
      const checkpoint::ShardRecord& record = reader.manifest().shards[i];
      if (record.key != shard.at("name") || record.flat_begin != shard.at("begin")) continue;
      EXPECT_EQ(record.flat_end, shard.at("end"));
      EXPECT_EQ(record.step, shard.at("step"));
      for (std::uint32_t s = 0; s < 3; ++s) {
        std::vector<float>& all = expected[uid + segments[s]];
        if (all.empty()) {
          all = npy(kReference / "expected" / uid / (std::string(segments[s]) + ".npy"));
        }
        const std::uint64_t at = shard.at("at"), count = record.flat_end - record.flat_begin;
        reader.read(i, s, 0, count, [&](const checkpoint::VerifiedRun& run) {
          EXPECT_EQ(std::memcmp(run.block + run.first * 4, &all[at + run.begin], run.count * 4), 0)
              << uid << " " << record.key << " " << segments[s];
        });
        ++pairs;
      }
    }
  }
  EXPECT_EQ(pairs, Json::parse(file_bytes(kReference / "expected.json")).size() * 3);
  EXPECT_GE(pairs, 50U);
}

TEST_F(Reference, export_gives_the_same_bytes_back) {
  ASSERT_FALSE(import(layout()).is_null()) << status_.text();
  const Json answer =
      ask(files().export_reference,
          {{"path", ours_.path()}, {"layout", layout()}, {"to", theirs_.path()}}, &status_);
  ASSERT_FALSE(answer.is_null()) << status_.text();
  std::size_t compared = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(kReference / "nvme_opt_state")) {
    if (!entry.is_regular_file()) continue;
    const auto name = entry.path().lexically_relative(kReference / "nvme_opt_state");
    EXPECT_EQ(file_bytes(std::filesystem::path(theirs_.path()) / name), file_bytes(entry.path()))
        << name;
    ++compared;
  }
  EXPECT_EQ(compared, 8U);
}

TEST_F(Reference, a_layout_that_does_not_fit_is_refused_before_anything_counts) {
  Json wrong = Json::parse(layout());
  wrong["stores"][1]["buckets"][2][1]["end"] =
      wrong["stores"][1]["buckets"][2][1]["end"].get<std::uint64_t>() - 1;
  EXPECT_TRUE(import(wrong.dump()).is_null());
  EXPECT_EQ(status_.code, MILLPOND_E_MISMATCH) << status_.text();
  wrong = Json::parse(layout());
  wrong["stores"][0]["buckets"].erase(2);
  EXPECT_TRUE(import(wrong.dump()).is_null());
  EXPECT_EQ(status_.code, MILLPOND_E_MISMATCH) << status_.text();
  EXPECT_TRUE(import("{\"stores\": 3}").is_null());
  EXPECT_EQ(status_.code, MILLPOND_E_ARGUMENT) << status_.text();
  EXPECT_TRUE(import("not JSON").is_null());
  EXPECT_EQ(status_.code, MILLPOND_E_ARGUMENT) << status_.text();
  EXPECT_TRUE(only_save(ours_.path()).empty()) << "something was left";
}

}  // namespace
}  // namespace millpond::tests
