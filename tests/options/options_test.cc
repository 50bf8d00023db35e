// The options document: a table of what is read and a table of what is refused, with the field.
#include "plugin/options/options.h"

#include <gtest/gtest.h>

#include "millpond/error.hpp"

namespace millpond::tests {
namespace {

using plugin::Options;
using plugin::parse_options;

// A document with a scratch directory and these members.
std::string with(const std::string& members) {
  return R"({"scratch": "/nvme")" + (members.empty() ? "" : ", " + members) + "}";
}

struct Refused {
  std::string field;
  std::string text;
  std::uint64_t offset = kNoValue;
};

Refused refused(const std::string& document, std::uint32_t minor = 0) {
  try {
    parse_options(document, minor);
    ADD_FAILURE() << "accepted: " << document;
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_OPTION) << document;
    return {error.field_name(), error.what(), error.offset()};
  }
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Options, defaults_are_those_of_the_struct) {
  const Options options = parse_options(with(""), 0);
  EXPECT_EQ(options.scratch, std::vector<std::string>{"/nvme"});
  EXPECT_EQ(options.host_memory_bytes, 0u);
  EXPECT_EQ(options.local_rank, 0u);
  EXPECT_EQ(options.local_size, 1u);
  EXPECT_EQ(options.device_staging_bytes, 536870912u);
  EXPECT_EQ(options.tile_elements, 0u);
  EXPECT_EQ(options.bucket_elements, 200000000u);
  EXPECT_EQ(options.block_elements, 0u);
  EXPECT_EQ(options.moments, kernels::Storage::kFp32);
  EXPECT_EQ(options.io_engine, "auto");
  EXPECT_EQ(options.direct, "auto");
  EXPECT_EQ(options.queue_depth, 0u);
  EXPECT_EQ(options.io_timeout_s, 60.0);
  EXPECT_TRUE(options.verify_reads);
  EXPECT_EQ(options.update_threads, 0u);
  EXPECT_EQ(options.save_bytes_per_s, 0u);
  EXPECT_EQ(options.log_level, 2u);
}

TEST(Options, every_key_is_read) {
  const Options options = parse_options(R"({
    "scratch": ["/a", "/b"], "host_memory_bytes": 1073741824, "local_rank": 3, "local_size": 8,
    "device_staging_bytes": 0, "tile_elements": 8192, "bucket_elements": 1000,
    "block_elements": 4096, "moments": "fp8_e4m3", "io_engine": "threads", "direct": false,
    "queue_depth": 16, "io_timeout_s": 2.5, "verify_reads": false, "update_threads": 4,
    "save_bytes_per_s": 1000000, "log_level": "debug"})",
                                        0);
  EXPECT_EQ(options.scratch, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(options.host_memory_bytes, 1073741824u);
  EXPECT_EQ(options.local_rank, 3u);
  EXPECT_EQ(options.local_size, 8u);
  EXPECT_EQ(options.device_staging_bytes, 0u);
  EXPECT_EQ(options.tile_elements, 8192u);
  EXPECT_EQ(options.bucket_elements, 1000u);
  EXPECT_EQ(options.block_elements, 4096u);
  EXPECT_EQ(options.moments, kernels::Storage::kFp8E4m3Scaled);
  EXPECT_EQ(options.io_engine, "threads");
  EXPECT_EQ(options.direct, "false");
  EXPECT_EQ(options.queue_depth, 16u);
  EXPECT_EQ(options.io_timeout_s, 2.5);
  EXPECT_FALSE(options.verify_reads);
  EXPECT_EQ(options.update_threads, 4u);
  EXPECT_EQ(options.save_bytes_per_s, 1000000u);
  EXPECT_EQ(options.log_level, 3u);
}

TEST(Options, names_stand_for_the_right_values) {
  using kernels::Storage;
  const auto moments = [](const std::string& name) {
    return parse_options(with(R"("moments": ")" + name + "\""), 0).moments;
  };
  EXPECT_EQ(moments("fp32"), Storage::kFp32);
  EXPECT_EQ(moments("bf16"), Storage::kBf16);
  EXPECT_EQ(moments("fp16"), Storage::kFp16Scaled);
  EXPECT_EQ(moments("fp8_e4m3"), Storage::kFp8E4m3Scaled);
  EXPECT_EQ(moments("fp8_e5m2"), Storage::kFp8E5m2Scaled);
  const auto level = [](const std::string& name) {
    return parse_options(with(R"("log_level": ")" + name + "\""), 0).log_level;
  };
  EXPECT_EQ(level("error"), 0u);
  EXPECT_EQ(level("warning"), 1u);
  EXPECT_EQ(level("info"), 2u);
  EXPECT_EQ(level("debug"), 3u);
  EXPECT_EQ(parse_options(with(R"("direct": true)"), 0).direct, "true");
  EXPECT_EQ(parse_options(with(R"("direct": "auto")"), 0).direct, "auto");
  EXPECT_EQ(parse_options(with(R"("io_engine": "io_uring")"), 0).io_engine, "io_uring");
  EXPECT_EQ(parse_options(with(R"("host_memory_bytes": "auto")"), 0).host_memory_bytes, 0u);
}

TEST(Options, borders_of_ranges_are_inside) {
  for (const char* members : {R"("host_memory_bytes": 4096)",
                              R"("host_memory_bytes": 1125899906842624)",
                              R"("local_rank": 65535, "local_size": 65536)",
                              R"("device_staging_bytes": 1125899906842624)",
                              R"("tile_elements": 0)",
                              R"("tile_elements": 4096)",
                              R"("tile_elements": 4294967296)",
                              R"("tile_elements": 258048)",
                              R"("block_elements": 67108864)",
                              R"("bucket_elements": 1)",
                              R"("bucket_elements": 281474976710656)",
                              R"("queue_depth": 0)",
                              R"("queue_depth": 4096)",
                              R"("io_timeout_s": 0.001)",
                              R"("io_timeout_s": 86400)",
                              R"("io_timeout_s": 1e2)",
                              R"("update_threads": 0)",
                              R"("update_threads": 1024)",
                              R"("save_bytes_per_s": 0)",
                              R"("block_elements": 8192, "tile_elements": 24576)"})
    EXPECT_NO_THROW(parse_options(with(members), 0)) << members;
}

TEST(Options, values_of_the_wrong_type_or_range_are_refused_by_key) {
  struct Row {
    const char* key;
    std::vector<const char*> values;
  };
  const Row rows[] = {
      {"host_memory_bytes",
       {"0", "4095", "1125899906842625", "-1", "1.5", "1e9", "\"1GiB\"", "\"\"", "null", "true",
        "[]", "{}", "99999999999999999999999"}},
      {"local_rank", {"-1", "65536", "\"0\"", "0.0", "null", "4294967296"}},
      {"local_size", {"0", "65537", "\"1\"", "1.0"}},
      {"device_staging_bytes", {"-1", "1125899906842625", "\"auto\""}},
      {"tile_elements", {"1", "4095", "4097", "-4096", "4096.0", "4294971392", "\"auto\"", "0.0"}},
      {"bucket_elements", {"0", "281474976710657", "\"1\"", "null"}},
      {"block_elements", {"1", "2048", "6144", "67112960", "4096.5", "\"4096\""}},
      {"moments", {"\"fp16_s256\"", "\"FP32\"", "\"\"", "32", "null", "[\"fp32\"]"}},
      {"io_engine", {"\"uring\"", "\"libaio\"", "1", "true"}},
      {"direct", {"\"true\"", "\"yes\"", "1", "0", "null"}},
      {"queue_depth", {"-1", "4097", "1.0", "\"1\""}},
      {"io_timeout_s", {"0", "-1", "86401", "\"60\"", "null", "true"}},
      {"verify_reads", {"0", "1", "\"true\"", "null"}},
      {"update_threads", {"-1", "1025", "\"all\""}},
      {"save_bytes_per_s", {"-1", "1.5", "1125899906842625"}},
      {"log_level", {"0", "4", "\"Info\"", "\"trace\"", "null"}},
  };
  for (const Row& row : rows) {
    for (const char* value : row.values) {
      const Refused r = refused(with("\"" + std::string(row.key) + "\": " + value));
      EXPECT_EQ(r.field, "options." + std::string(row.key)) << value;
      EXPECT_TRUE(has(r.text, "give ")) << r.text;
    }
  }
}

TEST(Options, scratch_is_one_directory_or_several_different_ones) {
  for (const char* value : {"\"\"", "[]", "1", "null", "{}", "[1]", R"(["/a", ""])",
                            R"(["/a", "/a"])", R"("\u0000")", R"(["/a", null])"})
    EXPECT_EQ(refused(R"({"scratch": )" + std::string(value) + "}").field, "options.scratch")
        << value;
  EXPECT_EQ(refused("{}").field, "options.scratch");
  EXPECT_EQ(refused(R"({"scratch": ")" + std::string(4096, 'a') + "\"}").field, "options.scratch");
  std::string many = "[\"/0\"";
  for (int i = 1; i < 64; ++i) many += ", \"/" + std::to_string(i) + "\"";
  EXPECT_EQ(parse_options(R"({"scratch": )" + many + "]}", 0).scratch.size(), 64u);
  EXPECT_EQ(refused(R"({"scratch": )" + many + ", \"/64\"]}").field, "options.scratch");
}

TEST(Options, unknown_keys_are_refused_with_the_nearest_known_one) {
  const std::pair<const char*, const char*> rows[] = {
      {"tile_element", "tile_elements"},
      {"blockelements", "block_elements"},
      {"momnets", "moments"},
      {"io-engine", "io_engine"},
      {"IO_TIMEOUT_S", "io_timeout_s"},
      {"host_memory", "host_memory_bytes"},
      {"scrath", "scratch"},
      {"save_byte_per_s", "save_bytes_per_s"},
      {"loglevel", "log_level"},
      {"verify_read", "verify_reads"},
      {"update_thread", "update_threads"},
      {"queue_deptg", "queue_depth"},
      {"localsize", "local_size"},
      {"dierct", "direct"},
  };
  for (const auto& [wrong, right] : rows) {
    const Refused r = refused(with("\"" + std::string(wrong) + "\": 1"));
    EXPECT_EQ(r.field, "options." + std::string(wrong));
    EXPECT_TRUE(has(r.text, "did you mean \"" + std::string(right) + "\"")) << r.text;
  }
  EXPECT_TRUE(has(refused(with(R"("": 1)")).text, "did you mean"));
  EXPECT_TRUE(has(refused(with("\"" + std::string(100'000, 'x') + "\": 1")).text, "did you mean"));
}

TEST(Options, conflicts_name_the_key_to_change) {
  EXPECT_EQ(refused(with(R"("tile_elements": 12288, "block_elements": 8192)")).field,
            "options.tile_elements");
  EXPECT_EQ(refused(with(R"("tile_elements": 4096, "block_elements": 8192)")).field,
            "options.tile_elements");
  // Above 262144 the block's default applies.
  EXPECT_EQ(refused(with(R"("tile_elements": 266240)")).field, "options.tile_elements");
  EXPECT_EQ(refused(with(R"("local_rank": 1)")).field, "options.local_rank");
  EXPECT_EQ(refused(with(R"("local_rank": 2, "local_size": 2)")).field, "options.local_rank");
}

TEST(Options, text_that_is_no_strict_json_is_refused_with_its_offset) {
  const std::pair<const char*, std::uint64_t> rows[] = {
      {"", 0},
      {R"({"scratch": "/a",})", 17},
      {R"({"scratch": "/a"} x)", 18},
      {R"({'scratch': "/a"})", 1},
      {R"({"scratch": "/a" // comment)", 17},
      {R"({"scratch": /a})", 12},
      {R"({"io_timeout_s": NaN})", 18},
      {R"({"local_rank": 01})", 16},
      {"{\"scratch\": \"/\xFF\"}", 14},
  };
  for (const auto& [document, offset] : rows) {
    const Refused r = refused(document);
    EXPECT_EQ(r.field, "options") << document;
    EXPECT_NEAR(static_cast<double>(r.offset), static_cast<double>(offset), 1) << document;
  }
  for (const char* document : {"[]", "null", "1", "\"scratch\"", "[{\"scratch\": \"/a\"}]"})
    EXPECT_TRUE(has(refused(document).text, "not a JSON object")) << document;
}

TEST(Options, duplicates_nesting_and_size_are_refused) {
  EXPECT_EQ(refused(R"({"scratch": "/a", "local_rank": 0, "local_rank": 0})").field,
            "options.local_rank");
  EXPECT_EQ(refused(R"({"scratch": "/a", "scr\u0061tch": "/b"})").field, "options.scratch");
  EXPECT_TRUE(has(refused(R"({"scratch": [["/a"]]})").text, "nested"));
  EXPECT_TRUE(has(refused(with("\"moments\": " + std::string(500'000, '['))).text, "nested"));
  EXPECT_TRUE(has(refused(with("") + std::string(1 << 20, ' ')).text, "too large"));
  EXPECT_EQ(refused(with(R"("io_timeout_s": 1e999)")).field, "options");
}

}  // namespace
}  // namespace millpond::tests
