// manifest.json and COMMIT.json: what is written comes back, and nothing else gets in.
#include <gtest/gtest.h>

#include <chrono>

#include "checkpoint/digest.h"
#include "checkpoint/geometry.h"
#include "checkpoint/strict_json.h"
#include "millpond/error.hpp"
#include "tests/checkpoint/sample_store.h"

namespace millpond::checkpoint::testing {
namespace {

// The sample with the numbers that a writer fills in, put down by hand.
Manifest complete_manifest() {
  Manifest manifest = sample_store(5).manifest;
  manifest.buckets[0].file_bytes = 40960 + 2 * 20480;
  manifest.buckets[0].segment_offset = {0, 40960, 61440};
  manifest.buckets[1].file_bytes = 16384;
  manifest.buckets[2].file_bytes = 8192;
  manifest.buckets[2].segment_offset = {0, 0, 4096};
  for (BucketRecord& bucket : manifest.buckets) bucket.sums_digest = std::string(32, 'a');
  return manifest;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Error refusal(const std::string& json) {
  try {
    parse_manifest(json, "dir/manifest.json");
  } catch (const Error& error) {
    return error;
  }
  return Error(MILLPOND_OK, "", "accepted: " + json.substr(0, 2000));
}

TEST(Manifest, comes_back_as_it_was_written) {
  const Manifest wrote = complete_manifest();
  const std::string json = to_json(wrote);
  const Manifest read = parse_manifest(json, "m");
  EXPECT_EQ(to_json(read), json);
  EXPECT_EQ(read.uid, wrote.uid);
  EXPECT_EQ(read.step, 8U);
  EXPECT_EQ(read.groups[1].key, "no \"decay\" \u00e4");
  EXPECT_EQ(read.topology[1].size, 2U);
  EXPECT_EQ(read.storage[1], kernels::Storage::kBf16);
  EXPECT_EQ(read.shards[1].key, "layer.0.\"bias\"\\\u00e4");
  EXPECT_EQ(read.shards[2].flat_begin, 18U);
  EXPECT_EQ(read.shards[2].offset, 6656U);
  EXPECT_EQ(read.shards[4].step, 0U);
  EXPECT_TRUE(read.shards[5].moments_only);
}

TEST(Manifest, B41_empty_shards_need_no_place) {
  Manifest manifest = complete_manifest();
  manifest.shards[3].bucket = 77;
  manifest.shards[3].offset = 12345;
  EXPECT_EQ(parse_manifest(to_json(manifest), "m").shards.size(), 6U);
  manifest.shards = {manifest.shards[3]};
  manifest.buckets.clear();
  EXPECT_EQ(parse_manifest(to_json(manifest), "m").shards.size(), 1U);
}

TEST(Manifest, is_refused_with_file_and_byte_when_it_is_not_exactly_of_the_format) {
  const std::string good = to_json(complete_manifest());
  const std::string step = "\"step\": 8";
  struct Case {
    std::string json, says;
  };
  const std::vector<Case> cases = {
      {"", "does not begin"},
      {"null", "does not begin"},
      {" " + good, "does not begin"},
      {good + "x", "not JSON"},
      {good + good, "not JSON"},
      {good.substr(0, good.size() - 3), "not JSON"},
      {replaced(good, "millpond-manifest", "millpond-commit"), "does not begin"},
      {replaced(good, step, step + ", \"step\": 8"), "there twice"},
      {replaced(good, step, step + ", \"colour\": 8"), "unknown key"},
      {replaced(good, step, step + ", \"key\": \"x\""), "does not belong here"},
      {replaced(good, step + ",", ""), "\"step\" is missing"},
      {replaced(good, step, "\"step\": -8"), "negative"},
      {replaced(good, step, "\"step\": 8.0"), "whole"},
      {replaced(good, step, "\"step\": 8e1"), "whole"},
      {replaced(good, step, "\"step\": 9223372036854775808"), "2^63"},
      {replaced(good, step, "\"step\": 99999999999999999999999"), "2^63"},
      {replaced(good, step, "\"step\": 1e999"), "not JSON"},
      {replaced(good, step, "\"step\": \"8\""), "wrong type"},
      {replaced(good, step, "\"step\": null"), "null"},
      {replaced(good, step, "\"step\": true"), "wrong type"},
      {replaced(good, step, "\"step\": [8]"), "not an object"},
      {replaced(good, step, "\"step\": {}"), "too deep"},
      {replaced(good, step, "\"step\": 08"), "not JSON"},
      {replaced(good, "\"groups\": [", "\"groups\": [3, "), "not an object"},
      {replaced(good, "\"groups\": [", "\"groups\": [[], "), "too deep"},
      {replaced(good, "\"global_shape\": [100, 64]", "\"global_shape\": [100, [64]]"), "too deep"},
      {replaced(good, "\"global_shape\": [100, 64]", "\"global_shape\": [100, \"64\"]"),
       "no number"},
      {replaced(good, "\"flat_range\": [0, 6400]", "\"flat_range\": [0]"), "two numbers"},
      {replaced(good, "\"moments_present\": true", "\"moments_present\": 1"), "wrong type"},
      {replaced(good, "\"exp_avg\": \"bf16\"", "\"exp_avg\": \"bf17\""), "storage format"},
      {replaced(good, "\"main\": \"fp32\"", "\"main\": \"bf16\""), "fp32"},
      {replaced(good, "main_and_moments", "main"), "unknown kind"},
      {replaced(good, "aaaaaaaa", "AAAAAAAA"), "hexadecimal"},
      {replaced(good, "\"uid\": \"", std::string("\"uid\": \"\xff")), "not JSON"},
      {replaced(good, "\"uid\": \"", std::string("\"uid\": \"") + std::string(4097, 'x')), "4096"},
      {replaced(good, "[100, 64]", "[" + std::string(30, '1') + "]"), "2^63"},
      {replaced(good, "[100, 64]", "[1,1,1,1,1,1,1,1,1]"), "too many"},
  };
  for (const Case& c : cases) {
    const Error error = refusal(c.json);
    EXPECT_EQ(error.code(), MILLPOND_E_CORRUPT) << error.what() << "\nwanted " << c.says;
    EXPECT_NE(std::string(error.what()).find(c.says), std::string::npos)
        << error.what() << "\nwanted " << c.says;
    EXPECT_NE(std::string(error.what()).find("dir/manifest.json"), std::string::npos);
  }
}

TEST(Manifest, numbers_that_do_not_fit_together_are_refused) {
  using Change = void (*)(Manifest&);
  const std::pair<Change, const char*> cases[] = {
      {[](Manifest& m) { m.block_elements = 0; }, "block_elements"},
      {[](Manifest& m) { m.block_elements = 4095; }, "block_elements"},
      {[](Manifest& m) { m.block_elements = 1ull << 62; }, "block_elements"},
      {[](Manifest& m) { m.buckets[0].elements += 256; }, "bytes"},
      {[](Manifest& m) { m.buckets[0].elements = INT64_MAX; }, "elements"},
      {[](Manifest& m) { m.buckets[0].elements = 0; }, "elements"},
      {[](Manifest& m) { m.buckets[1].moments_present = true; }, "buckets[1].bytes"},
      {[](Manifest& m) { m.buckets[0].segment_offset[1] += 4096; }, "segment_offsets"},
      {[](Manifest& m) { m.buckets[0].file_bytes += 4096; }, "bytes"},
      {[](Manifest& m) { m.shards[0].flat_end = 6401; }, "leaves the box"},
      {[](Manifest& m) { m.shards[2].flat_begin = 4000; }, "leaves the box"},
      {[](Manifest& m) {
         m.shards[0].box_offset = {1, 0};
       },
       "leaves the parameter"},
      {[](Manifest& m) { m.shards[0].box_offset = {0}; }, "dimensions"},
      {[](Manifest& m) {
         m.shards[0].global_shape = m.shards[0].box_shape = {1ull << 40, 1ull << 40};
       },
       "63 bits"},
      {[](Manifest& m) { m.shards[0].bucket = 3; }, "bucket"},
      {[](Manifest& m) { m.shards[0].bucket = 2; }, "kind"},
      {[](Manifest& m) { m.shards[1].offset = 6401; }, "inside"},
      {[](Manifest& m) { m.shards[2].offset = 6912; }, "inside"},
      {[](Manifest& m) { m.shards[2].offset = 1ull << 62; }, "inside"},
      {[](Manifest& m) { m.shards[1].offset = 6144; }, "overlap"},
      {[](Manifest& m) { m.shards[0].group_id = 8; }, "group"},
      {[](Manifest& m) { m.groups[1].id = 7; }, "twice"},
      {[](Manifest& m) { m.shards[0].key.clear(); }, "without a key"},
      {[](Manifest& m) {
         m.shards[4].key = m.shards[0].key;
         m.shards[4].global_shape = m.shards[4].box_shape = {100, 64};
       },
       "same elements"},
      {[](Manifest& m) { m.shards[4].key = m.shards[0].key; }, "global shapes"},
      {[](Manifest& m) { m.storage[0] = kernels::Storage::kBf16; }, "fp32"},
  };
  for (const auto& [change, says] : cases) {
    Manifest manifest = complete_manifest();
    change(manifest);
    const Error error = refusal(to_json(manifest));
    EXPECT_EQ(error.code(), MILLPOND_E_CORRUPT) << error.what() << "\nwanted " << says;
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos)
        << error.what() << "\nwanted " << says;
  }
}

TEST(Manifest, a_newer_version_is_named) {
  const Error error = refusal(replaced(to_json(complete_manifest()), "\"version\": 1,",
                                       "\"version\": 2,\n\"unheard_of\": {},"));
  EXPECT_EQ(error.code(), MILLPOND_E_VERSION);
  EXPECT_NE(std::string(error.what()).find("version 2"), std::string::npos) << error.what();
}

TEST(Manifest, no_changed_byte_makes_it_crash) {
  const std::string good = to_json(complete_manifest());
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int change : {0x01, 0x20, 0x80, good[at] ^ '"', good[at] ^ '9', good[at] ^ '['}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ change);
      const Error error = refusal(bad);
      EXPECT_TRUE(error.code() == MILLPOND_OK || error.code() == MILLPOND_E_CORRUPT ||
                  error.code() == MILLPOND_E_VERSION)
          << error.what();
    }
  }
}

TEST(Manifest, deep_nesting_and_endless_lists_are_refused_at_once) {
  const std::string start = "{\"format\": \"millpond-manifest\", \"version\": 1, \"shards\": ";
  EXPECT_NE(refusal(start + std::string(10'000'000, '[')).code(), MILLPOND_OK);
  EXPECT_NE(refusal(start + std::string(10'000'000, '{')).code(), MILLPOND_OK);
  std::string row = "[{\"global_shape\": [0";
  for (int i = 0; i < 3'000'000; ++i) row += ",0";
  const Error error = refusal(start + row);
  EXPECT_NE(std::string(error.what()).find("too many values"), std::string::npos) << error.what();
}

TEST(Manifest, of_100000_shards_is_read_in_seconds) {
  Manifest manifest = complete_manifest();
  manifest.buckets.resize(1);
  manifest.buckets[0] = {100'000 * 256, 0, false, false, {}, std::string(32, '0')};
  manifest.buckets[0].file_bytes = geometry_of(manifest, 0).file_bytes;
  const ShardRecord one = manifest.shards[0];
  manifest.shards.clear();
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    ShardRecord shard = one;
    shard.key = "decoder.layers." + std::to_string(i) + ".self_attention.linear_qkv.weight";
    shard.flat_end = 200;
    shard.bucket = 0;
    shard.offset = i * 256;
    manifest.shards.push_back(std::move(shard));
  }
  const std::string json = to_json(manifest);
  const auto begin = std::chrono::steady_clock::now();
  const Manifest read = parse_manifest(json, "m");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(read.shards.size(), 100'000U);
  EXPECT_EQ(read.shards[99'999].offset, 99'999U * 256);
  EXPECT_LT(took.count(), 20.0);  // with sanitizers, on a busy machine
  RecordProperty("seconds", std::to_string(took.count()));
}

Commit sample_commit() {
  return {kNewId,
          12,
          2,
          {{0, "rank00000/opt0_0", 100, std::string(32, '1')},
           {0, "rank00000/opt1_0", 200, std::string(32, '2')},
           {1, "rank00001/opt0_0", 300, std::string(32, '3')}}};
}

// With a digest that fits, so that what is behind it is tested.
std::string resealed(const std::string& json) {
  const std::size_t end = json.rfind(",\n\"digest\"");
  const std::string body = json.substr(0, end);
  return body + ",\n\"digest\": \"" + digest(body) + "\"}\n";
}

TEST(Commit, comes_back_as_it_was_written) {
  const std::string json = to_json(sample_commit());
  const Commit read = parse_commit(json, "c", kNewId);
  EXPECT_EQ(to_json(read), json);
  EXPECT_EQ(read.sequence, 12U);
  EXPECT_EQ(read.world_size, 2U);
  ASSERT_NE(read.find("rank00001/opt0_0"), nullptr);
  EXPECT_EQ(read.find("rank00001/opt0_0")->manifest_bytes, 300U);
  EXPECT_EQ(read.find("rank00002/opt0_0"), nullptr);
  EXPECT_EQ(resealed(json), json);
}

TEST(Commit, every_changed_byte_is_refused) {
  const std::string good = to_json(sample_commit());
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      EXPECT_THROW(parse_commit(bad, "c", kNewId), Error) << at;
    }
    EXPECT_THROW(parse_commit(good.substr(0, at), "c", kNewId), Error) << at;
  }
  EXPECT_THROW(parse_commit(good + "\n", "c", kNewId), Error);
}

TEST(Commit, a_sealed_commit_of_other_contents_is_refused) {
  const std::string good = to_json(sample_commit());
  EXPECT_THROW(parse_commit(good, "c", kOldId), Error);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"world_size\": 2", "\"world_size\": 1"},
           {"rank00001/opt0_0", "../escape"},
           {"rank00001/opt0_0", "/absolute"},
           {"rank00001/opt0_0", "rank00001//x"},
           {"rank00000/opt1_0", "rank00000/opt0_0"},
           {"rank00000/opt0_0", "rank00000/opt9_9"},
           {"\"sequence\": 12", "\"sequence\": 12, \"sequence\": 12"},
           {"\"sequence\": 12,", ""},
           {"\"manifest_bytes\": 100", "\"manifest_bytes\": 1e2"},
           {"11111111", "1111111g"}}) {
    EXPECT_THROW(parse_commit(resealed(replaced(good, from, to)), "c", kNewId), Error)
        << from << " -> " << to;
  }
}

TEST(Commit, names_of_stores_are_names_of_directories_below_the_save) {
  for (const char* uid : {"rank00000/opt0_0", "a", "A-b_c.d/e/f", "..a/b.."}) {
    EXPECT_NO_THROW(check_uid(uid)) << uid;
  }
  for (const std::string& uid :
       {std::string(), std::string("/"), std::string("a/"), std::string("/a"), std::string("a//b"),
        std::string("."), std::string("a/.."), std::string("../a"), std::string("a b"),
        std::string("a\\b"), std::string("a\nb"), std::string("\u00e4"), std::string("a\0b", 3),
        std::string(129, 'a'), std::string("COMMIT.json"), std::string("a/manifest.json"),
        std::string("a/bucket00000.bin/b"), std::string("COMMIT.json.tmp0")}) {
    EXPECT_THROW(check_uid(uid), Error) << uid;
  }
}

}  // namespace
}  // namespace millpond::checkpoint::testing
