// abi/README.md against the code: a person works from it, so it may not lag behind.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "millpond/handshake.pb.h"
#include "millpond/host.h"
#include "plugin/guard/rules.h"
#include "plugin/options/keys.h"

namespace {

std::string contents_of(const std::string& path) {
  std::ifstream file(std::string(MILLPOND_SOURCE_ROOT) + "/" + path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void expect_row(const std::string& readme, const std::string& row) {
  EXPECT_NE(readme.find("\n" + row), std::string::npos) << "abi/README.md lacks: " << row;
}

// "refused unless x is active" -> "refused unless `x` is active", as the table prints it.
std::string with_quotes(std::string verdict, const std::string& name) {
  const size_t at = name.empty() ? std::string::npos : verdict.find(name);
  if (at != std::string::npos) verdict.replace(at, name.size(), "`" + name + "`");
  return verdict;
}

TEST(Readme, lists_every_feature_with_its_verdict) {
  const std::string readme = contents_of("abi/README.md");
  for (const auto& rule : millpond::plugin::feature_rules()) {
    const std::string verdict = with_quotes(verdict_text(rule), std::string(rule.required));
    expect_row(readme, "| `" + std::string(rule.name) + "` | 1." +
                           std::to_string(rule.since_minor) + " | " +
                           (rule.must_evaluate ? "yes" : "no") + " | " + verdict + " | ");
  }
}

TEST(Readme, lists_every_option) {
  const std::string readme = contents_of("abi/README.md");
  const std::string table = readme.substr(readme.find("## Options"));
  for (const auto& key : millpond::plugin::option_keys()) {
    EXPECT_NE(table.find("`" + std::string(key.name) + "`"), std::string::npos) << key.name;
  }
}

TEST(Readme, lists_every_error_code) {
  const std::string readme = contents_of("abi/README.md");
  std::istringstream golden(contents_of("abi/layout.golden"));
  int seen = 0;
  for (std::string line; std::getline(golden, line);) {
    std::istringstream words(line);
    std::string kind, name, value;
    words >> kind >> name >> value;
    if (kind != "number" || (name != "MILLPOND_OK" && name.rfind("MILLPOND_E_", 0) != 0)) continue;
    expect_row(readme, "| " + value + " | `" + name + "` | ");
    ++seen;
  }
  EXPECT_EQ(seen, 24);
}

// The bytes of the worked example, read by the official library, are what the page says they are.
TEST(Readme, its_bytes_are_the_message) {
  const std::string readme = contents_of("abi/README.md");
  const size_t begin = readme.find("```hex\n");
  ASSERT_NE(begin, std::string::npos);
  std::istringstream block(readme.substr(begin + 7, readme.find("```", begin + 7) - begin - 7));
  std::string bytes;
  for (std::string line; std::getline(block, line);) {
    // Bytes end where at least two spaces begin the explanation.
    const size_t first = line.find_first_not_of(' ');
    std::istringstream words(line.substr(first, line.find("  ", first) - first));
    for (std::string word; words >> word;) {
      ASSERT_EQ(word.size(), 2u) << line;
      bytes += static_cast<char>(std::stoi(word, nullptr, 16));
    }
  }
  millpond::v1::HostProfile profile;
  ASSERT_TRUE(profile.ParseFromString(bytes));
  EXPECT_EQ(profile.SerializeAsString(), bytes);
  EXPECT_EQ(profile.framework(), "demo");
  EXPECT_EQ(profile.optimizer().class_name(), "AdamW");
  EXPECT_EQ(profile.optimizer().family(), millpond::v1::FAMILY_ADAM);
  EXPECT_EQ(profile.arithmetic(), "torch_cpu_foreach/1");
  EXPECT_EQ(profile.config_epoch(), 1u);
  ASSERT_EQ(profile.features_size(), 1);
  EXPECT_EQ(profile.features(0).name(), "param.fp8");
  EXPECT_EQ(profile.features(0).state(), millpond::v1::STATE_INACTIVE);
  ASSERT_EQ(profile.groups_size(), 1);
  EXPECT_EQ(profile.groups(0).id(), 3u);
  EXPECT_EQ(profile.groups(0).key(), "decay");
  ASSERT_EQ(profile.shards_size(), 1);
  const auto& shard = profile.shards(0);
  EXPECT_EQ(shard.id(), 7u);
  EXPECT_EQ(shard.key(), "w");
  ASSERT_EQ(shard.global_shape_size(), 2);
  EXPECT_EQ(shard.global_shape(0) * shard.global_shape(1), shard.flat_end());
  EXPECT_EQ(shard.box_offset_size(), 2);
  EXPECT_EQ(shard.box_shape(1), 300u);
  EXPECT_EQ(shard.flat_begin(), 0u);
  EXPECT_EQ(shard.group_id(), 3u);
  EXPECT_EQ(shard.kind(), millpond::v1::KIND_MAIN_AND_MOMENTS);
  EXPECT_EQ(shard.model_dtype(), MILLPOND_DTYPE_BF16);
  EXPECT_EQ(shard.grad_dtype(), MILLPOND_DTYPE_FP32);
  EXPECT_EQ(shard.model_storage(), millpond::v1::STORAGE_DENSE);
  EXPECT_EQ(shard.grad_storage(), millpond::v1::STORAGE_DENSE);
  EXPECT_EQ(shard.device_type(), MILLPOND_DEVICE_CPU);
  // The offsets of the pointers beside it.
  EXPECT_EQ(offsetof(millpond_shard_pointers, grad), 48u);
  EXPECT_EQ(offsetof(millpond_shard_pointers, main), 88u);
  EXPECT_EQ(sizeof(millpond_shard_pointers), 128u);
}

}  // namespace
