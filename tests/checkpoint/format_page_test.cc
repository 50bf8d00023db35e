// checkpoint/FORMAT.md's worked example is what the writer writes, byte for byte, and what the
// reader reads. The page's code blocks are found by the name behind their language.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "checkpoint/saves.h"
#include "checkpoint/store_reader.h"
#include "checkpoint/store_writer.h"
#include "tests/checkpoint/memory_file_system.h"

namespace millpond::checkpoint::testing {
namespace {

constexpr const char* kExampleId = "000102030405060708090a0b0c0d0e0f";

// ```<language> <name>\n...``` by name.
std::map<std::string, std::string> code_blocks() {
  std::ifstream page(MILLPOND_FORMAT_PAGE);
  EXPECT_TRUE(page.is_open()) << MILLPOND_FORMAT_PAGE;
  std::map<std::string, std::string> blocks;
  std::string line, name;
  while (std::getline(page, line)) {
    if (line.rfind("```", 0) == 0) {
      const std::size_t space = line.find(' ');
      name = space == std::string::npos ? "" : line.substr(space + 1);
    } else if (!name.empty()) {
      blocks[name] += line + "\n";
    }
  }
  return blocks;
}

// "offset: bytes" lines; what is between them is zero; "end <offset>" is the length.
std::string from_hex(const std::string& dump) {
  std::istringstream lines(dump);
  std::string line, bytes;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "end") {
      words >> word;
      bytes.resize(std::stoull(word, nullptr, 16));
      continue;
    }
    bytes.resize(std::stoull(word, nullptr, 16));
    while (words >> word) bytes += static_cast<char>(std::stoul(word, nullptr, 16));
  }
  return bytes;
}

std::string to_hex(const std::string& bytes) {
  std::string text;
  char word[32];
  for (std::size_t at = 0; at < bytes.size(); at += 16) {
    const std::string row = bytes.substr(at, 16);
    if (row.find_first_not_of('\0') == std::string::npos) continue;
    std::snprintf(word, sizeof word, "%08zx", at);
    text += word;
    for (const char c : row) {
      std::snprintf(word, sizeof word, " %02x", static_cast<unsigned char>(c));
      text += word;
    }
    text += "\n";
  }
  std::snprintf(word, sizeof word, "end %08zx\n", bytes.size());
  return text + word;
}

// One parameter "w" of three elements: mains 1, -2, 0.5; exp_avg 0.25, 0, -1; exp_avg_sq 0.5, 0, 2.
std::map<std::string, std::string> example_files() {
  Manifest manifest;
  manifest.writer = "millpond 0.1.0";
  manifest.uid = "rank00000/opt0_0";
  manifest.step = 5;
  manifest.block_elements = 4096;
  manifest.storage = {kernels::Storage::kFp32, kernels::Storage::kBf16, kernels::Storage::kBf16};
  manifest.groups = {{0, "decay"}};
  manifest.topology = {{"dp", 0, 1}};
  manifest.buckets.resize(1);
  manifest.buckets[0].elements = 256;
  manifest.buckets[0].moments_present = true;
  ShardRecord shard;
  shard.key = "w";
  shard.global_shape = shard.box_shape = {3};
  shard.box_offset = {0};
  shard.flat_end = 3;
  shard.step = 5;
  manifest.shards = {shard};

  MemoryFileSystem fs;
  StoreWriter writer(fs, kExampleId, manifest);
  std::vector<std::byte> block(4096);
  const auto write = [&](std::uint32_t segment, const auto& values) {
    std::memcpy(block.data(), values, sizeof values);
    writer.write(0, segment, 0, block);
    std::fill(block.begin(), block.end(), std::byte{0});
  };
  const float mains[] = {1.0F, -2.0F, 0.5F};
  const std::uint16_t exp_avg[] = {0x3e80, 0x0000, 0xbf80}, exp_avg_sq[] = {0x3f00, 0x0000, 0x4000};
  write(0, mains);
  write(1, exp_avg);
  write(2, exp_avg_sq);
  write_commit(fs, {kExampleId, 1, 1, {writer.finish()}}, 0);
  return fs.files();
}

TEST(FormatPage, the_worked_example_is_what_is_written) {
  const auto blocks = code_blocks();
  const auto files = example_files();
  ASSERT_EQ(files.size(), 4U);
  for (const auto& [path, bytes] : files) {
    const std::string name = path.substr(path.rfind('/') + 1);
    EXPECT_TRUE(blocks.contains(name)) << name;
    const std::string shown = blocks.contains(name) ? blocks.at(name) : "";
    if (name.ends_with(".json")) {
      EXPECT_EQ(bytes, shown) << name;
    } else {
      EXPECT_TRUE(bytes == from_hex(shown)) << name << ":\n" << to_hex(bytes);
    }
  }
}

TEST(FormatPage, the_worked_example_loads) {
  const auto blocks = code_blocks();
  MemoryFileSystem fs;
  fs.make_directories(std::string(kExampleId) + "/rank00000/opt0_0");
  for (const auto& [path, written] : example_files()) {
    const std::string name = path.substr(path.rfind('/') + 1);
    const std::string& shown = blocks.at(name);
    fs.create(path, 0);
    fs.bytes(path) = name.ends_with(".json") ? shown : from_hex(shown);
  }
  const Commit commit = find_save(fs, "");
  StoreReader reader(fs, commit.save_id, commit.stores.at(0));
  EXPECT_EQ(reader.manifest().shards.at(0).step, 5U);
  float mains[3] = {};
  reader.read(0, 0, 0, 3, [&](const VerifiedRun& run) {
    ASSERT_EQ(run.count, 3U);
    std::memcpy(mains, run.block + run.first * 4, sizeof mains);
  });
  EXPECT_EQ(mains[0], 1.0F);
  EXPECT_EQ(mains[1], -2.0F);
  EXPECT_EQ(mains[2], 0.5F);
}

}  // namespace
}  // namespace millpond::checkpoint::testing
