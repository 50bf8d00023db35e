// Damage of every kind to a small checkpoint: each is refused before anything is handed out, with
// the file's name and a byte. R04 is among it: a flipped exponent bit, a truncated file.
//
// Seen to go red: without the position in the sum's seed (swapped blocks and buckets load), without
// the check of a file's size, without the digest of the sums, without the digest of the manifest.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "checkpoint/digest.h"
#include "checkpoint/saves.h"
#include "checkpoint/store_reader.h"
#include "millpond/error.hpp"
#include "tests/checkpoint/memory_file_system.h"
#include "tests/checkpoint/sample_store.h"

namespace millpond::checkpoint::testing {
namespace {

class Corruption : public ::testing::Test {
 protected:
  Corruption() {
    save(fs_, kNewId, sample_store(2));
    pristine_ = fs_.files();
  }

  std::string path(const std::string& name) const {
    return std::string(kNewId) + "/" + (name == kCommitName ? "" : std::string(kUid) + "/") + name;
  }
  std::string& bytes(const std::string& name) { return fs_.bytes(path(name)); }
  void restore(const std::string& name) { bytes(name) = pristine_.at(path(name)); }

  void expect_refused(const std::string& name, const std::string& how) {
    ++cases_;
    try {
      load(fs_);
      ADD_FAILURE() << "loads with " << name << " " << how;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == MILLPOND_E_CORRUPT || error.code() == MILLPOND_E_VERSION ||
                  error.code() == MILLPOND_E_MISSING)
          << error.what();
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos)
          << how << ": the file is not named: " << error.what();
      if (error.code() != MILLPOND_E_MISSING) {
        EXPECT_NE(std::string(error.what()).find("at offset"), std::string::npos)
            << how << ": no byte is named: " << error.what();
      }
    }
  }

  MemoryFileSystem fs_;
  std::map<std::string, std::string> pristine_;
  std::uint64_t cases_ = 0;
};

TEST_F(Corruption, of_nothing_loads) { EXPECT_TRUE(same(load(fs_), sample_store(2))); }

TEST_F(Corruption, any_bit_of_manifest_commit_and_sums) {
  for (const char* name : {"manifest.json", "COMMIT.json", "bucket00000.sums", "bucket00001.sums",
                           "bucket00002.sums"}) {
    for (std::size_t at = 0; at < bytes(name).size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        bytes(name)[at] = static_cast<char>(bytes(name)[at] ^ (1 << bit));
        expect_refused(name, "bit " + std::to_string(at * 8 + static_cast<unsigned>(bit)));
        restore(name);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(cases_, 10'000U);
}

TEST_F(Corruption, R04_any_flipped_bit_of_data) {
  std::mt19937_64 random(7);
  for (const char* name : {"bucket00000.bin", "bucket00001.bin", "bucket00002.bin"}) {
    for (int i = 0; i < 500; ++i) {
      const std::size_t at = random() % bytes(name).size();
      bytes(name)[at] = static_cast<char>(bytes(name)[at] ^ (1 << random() % 8));
      expect_refused(name, "byte " + std::to_string(at));
      restore(name);
    }
    for (const std::size_t at : {std::size_t{0}, bytes(name).size() - 1}) {
      bytes(name)[at] = static_cast<char>(bytes(name)[at] ^ 1);
      expect_refused(name, "byte " + std::to_string(at));
      restore(name);
    }
  }
}

TEST_F(Corruption, R04_any_other_length) {
  for (const auto& [full, contents] : pristine_) {
    const std::string name = full.substr(full.rfind('/') + 1);
    const std::size_t size = contents.size();
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, size / 2, size - 4096,
                                     size - 1, size + 1, size + 4096, size * 2}) {
      if (length > size * 2 || length == size) continue;
      bytes(name).resize(length);
      expect_refused(name, "length " + std::to_string(length));
      restore(name);
    }
    fs_.remove_tree(full);
    if (name == "COMMIT.json") {
      EXPECT_THROW(load(fs_), Error);
    } else {
      expect_refused(name, "gone");
    }
    fs_.create(full, 0);
    restore(name);
  }
  EXPECT_TRUE(same(load(fs_), sample_store(2)));
}

TEST_F(Corruption, swapped_blocks) {
  // bucket 0: two full blocks of main at 0 and 16384, of exp_avg at 40960 and 49152, then
  // exp_avg_sq.
  const std::pair<std::size_t, std::size_t> swaps[] = {{0, 16384}, {40960, 49152}, {40960, 61440}};
  for (const auto& [a, b] : swaps) {
    std::string& data = bytes("bucket00000.bin");
    std::swap_ranges(data.begin() + static_cast<std::ptrdiff_t>(a),
                     data.begin() + static_cast<std::ptrdiff_t>(a) + 8192,
                     data.begin() + static_cast<std::ptrdiff_t>(b));
    expect_refused("bucket00000.bin", "blocks swapped");
    restore("bucket00000.bin");
  }
}

// Whole blocks in the wrong place together with their sums, in files whose digests were made to
// fit: what only the position in the sum's seed can notice.
TEST(CorruptionOfPlace, blocks_moved_with_their_sums_do_not_pass) {
  SampleStore store = sample_store(2);
  store.manifest.buckets[0].moments_present = false;
  store.manifest.buckets.resize(2);
  store.manifest.buckets[0].elements = store.manifest.buckets[1].elements = 4096;
  store.manifest.shards = {store.manifest.shards[4], store.manifest.shards[4]};
  store.manifest.shards[0].key = "other";
  store.manifest.shards[0].bucket = 0;
  store.bytes.resize(2);
  const std::vector<std::byte> other = store.bytes[1][0];
  store.bytes[0] = {std::vector<std::byte>(16384, std::byte{1}), {}, {}};

  const auto write = [&](MemoryFileSystem& fs, const std::string& uid) {
    SampleStore copy = store;
    copy.manifest.uid = uid;
    const StoreRecord record = write_store(fs, kNewId, copy);
    return record;
  };
  MemoryFileSystem fs;
  fs.make_directories(kNewId);
  Commit commit{kNewId, 1, 2, {write(fs, "rank00000/a"), write(fs, "rank00001/a")}};
  commit.stores[1].rank = 1;
  write_commit(fs, commit, 0);
  const auto verify = [&](std::size_t rank) {
    StoreReader reader(fs, kNewId, commit.stores[rank]);
    reader.verify_block(0, 0, 0);
    reader.verify_block(1, 0, 0);
  };
  verify(0);
  verify(1);
  const std::string a = std::string(kNewId) + "/rank00000/a/",
                    b = std::string(kNewId) + "/rank00001/a/";

  // The other rank's file, bit for bit the same data and of the same length.
  const auto keep = fs.files();
  for (const char* name : {"bucket00000.bin", "bucket00000.sums"})
    fs.bytes(a + name) = keep.at(b + name);
  EXPECT_THROW(verify(0), Error);  // the sums are another store's
  fs.bytes(a + "bucket00000.sums") = keep.at(a + "bucket00000.sums");
  verify(0);  // the same data is the same data

  // Sums of the other rank, made to be named by manifest and commit.
  std::string manifest = fs.bytes(a + "manifest.json");
  const Manifest other_manifest = parse_manifest(keep.at(b + "manifest.json"), "m");
  const Manifest own_manifest = parse_manifest(manifest, "m");
  Manifest forged = own_manifest;
  forged.buckets[0].sums_digest = other_manifest.buckets[0].sums_digest;
  fs.bytes(a + "manifest.json") = to_json(forged);
  fs.bytes(a + "bucket00000.sums") = keep.at(b + "bucket00000.sums");
  commit.stores[0].manifest_digest = digest(to_json(forged));
  EXPECT_THROW(verify(0), Error);

  // Bucket 1 in the place of bucket 0, sums and all.
  forged = own_manifest;
  forged.buckets[0].sums_digest = own_manifest.buckets[1].sums_digest;
  fs.bytes(a + "manifest.json") = to_json(forged);
  fs.bytes(a + "bucket00000.sums") = keep.at(a + "bucket00001.sums");
  fs.bytes(a + "bucket00000.bin") = keep.at(a + "bucket00001.bin");
  commit.stores[0].manifest_digest = digest(to_json(forged));
  EXPECT_THROW(verify(0), Error);
}

// Two runs of blocks of a bucket change places, their sums with them, and all digests are made to
// fit.
void expect_swap_is_noticed(std::size_t data_a, std::size_t data_b, std::size_t data_bytes,
                            std::size_t sum_a, std::size_t sum_b, std::size_t sum_count) {
  MemoryFileSystem fs;
  save(fs, kNewId, sample_store(2));
  const std::string directory = std::string(kNewId) + "/" + kUid + "/";
  const auto swap = [](std::string& in, std::size_t a, std::size_t b, std::size_t bytes) {
    const auto at = [&](std::size_t i) { return in.begin() + static_cast<std::ptrdiff_t>(i); };
    std::swap_ranges(at(a), at(a + bytes), at(b));
  };
  swap(fs.bytes(directory + "bucket00000.bin"), data_a, data_b, data_bytes);
  std::string& sums = fs.bytes(directory + "bucket00000.sums");
  swap(sums, sum_a * 8, sum_b * 8, sum_count * 8);
  Manifest manifest = parse_manifest(fs.bytes(directory + "manifest.json"), "m");
  manifest.buckets[0].sums_digest = digest(sums);
  fs.bytes(directory + "manifest.json") = to_json(manifest);
  const StoreRecord record{0, kUid, to_json(manifest).size(), digest(to_json(manifest))};
  StoreReader reader(fs, kNewId, record);  // everything fits together
  const BucketGeometry geometry = geometry_of(manifest, 0);
  for (std::uint32_t s = 0; s < 3; ++s) {
    for (std::uint64_t k = 0; k < geometry.blocks; ++k) {
      const bool moved = s * 3 + k - sum_a < sum_count || s * 3 + k - sum_b < sum_count;
      if (moved) {
        EXPECT_THROW(reader.verify_block(0, s, k), Error) << s << " " << k;
      } else {
        EXPECT_NO_THROW(reader.verify_block(0, s, k)) << s << " " << k;
      }
    }
  }
}

TEST(CorruptionOfPlace, blocks_swapped_within_a_segment_with_their_sums) {
  expect_swap_is_noticed(0, 16384, 16384, 0, 1, 1);
}

TEST(CorruptionOfPlace, segments_swapped_with_their_sums) {
  expect_swap_is_noticed(40960, 61440, 20480, 3, 6, 3);
}

TEST_F(Corruption, old_sums_with_new_data_and_the_other_way_round) {
  MemoryFileSystem other;
  save(other, kNewId, sample_store(9));
  for (const char* name : {"bucket00000.bin", "bucket00000.sums", "manifest.json"}) {
    bytes(name) = other.bytes(path(name));
    expect_refused(name, "of another save");
    restore(name);
  }
  bytes("COMMIT.json") = other.bytes(path("COMMIT.json"));
  expect_refused("manifest.json", "with the commit of another save");
}

TEST_F(Corruption, a_commit_of_another_save_id) {
  MemoryFileSystem other;
  save(other, kOldId, sample_store(2));
  bytes("COMMIT.json") = other.bytes(std::string(kOldId) + "/COMMIT.json");
  expect_refused("COMMIT.json", "of another save id");
}

TEST_F(Corruption, a_damaged_newest_save_does_not_give_way_to_an_older_one) {
  // As after a kill between the new commit and the older save's removal.
  const StoreRecord record = write_store(fs_, kOldId, sample_store(1));
  write_commit(fs_, {kOldId, 7, 1, {record}}, 0);
  EXPECT_TRUE(same(load(fs_), sample_store(1)));
  fs_.bytes(std::string(kOldId) + "/COMMIT.json")[30] ^= 1;
  EXPECT_THROW(load(fs_), Error);
  EXPECT_TRUE(same(load(fs_, kNewId), sample_store(2)));  // when it is asked for
}

TEST_F(Corruption, a_directory_in_place_of_a_file) {
  for (const auto& [full, contents] : pristine_) {
    const std::string name = full.substr(full.rfind('/') + 1);
    fs_.remove_tree(full);
    fs_.make_directories(full);
    EXPECT_THROW(load(fs_), Error) << name;
    fs_.remove_tree(full);
    fs_.create(full, 0);
    restore(name);
  }
}

}  // namespace
}  // namespace millpond::checkpoint::testing
