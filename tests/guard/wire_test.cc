// read_profile and write_report against the official Protocol Buffers library, both ways.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "millpond/error.hpp"
#include "plugin/guard/profile.h"
#include "tests/guard/profiles.h"
#include "tests/guard/random_messages.h"
#include "tests/guard/same_profile.h"

namespace millpond::tests {
namespace {

// The refusal of bytes that are no profile; its code and field are checked here.
std::optional<Error> failure(const std::string& bytes) {
  try {
    plugin::read_profile(bytes.data(), bytes.size());
    return std::nullopt;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_ARGUMENT);
    EXPECT_EQ(error.field_name(), "bind_args.profile");
    EXPECT_LE(error.offset(), bytes.size());
    return error;
  }
}

std::string field(int number, int wire_type) {
  std::string bytes;
  for (unsigned key = static_cast<unsigned>(number << 3 | wire_type);; key >>= 7) {
    bytes.push_back(static_cast<char>((key & 0x7F) | (key > 0x7F ? 0x80 : 0)));
    if (key <= 0x7F) return bytes;
  }
}

TEST(Wire, profiles_read_as_the_official_library_wrote_them) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    v1::HostProfile official;
    fill_at_random(official, random);
    const std::string text = difference(read(official), official);
    ASSERT_EQ(text, "") << "message " << i;
  }
}

TEST(Wire, reports_are_the_official_librarys_bytes) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 500; ++i) {
    v1::BindReport want;
    fill_at_random(want, random);
    want.mutable_plan();
    want.set_accepted(want.refusals().empty());
    std::vector<plugin::Refusal> refusals;
    for (const v1::Refusal& r : want.refusals())
      refusals.push_back({r.code(), r.subject(), r.reason(), r.remedy()});
    const v1::Plan& p = want.plan();
    plugin::PlanReport plan;
    plan.shards = p.shards(), plan.elements = p.elements(), plan.buckets = p.buckets();
    plan.tiles = p.tiles(), plan.tile_elements = p.tile_elements();
    plan.block_elements = p.block_elements();
    for (const v1::Directory& d : p.directories())
      plan.directories.push_back({d.path(), d.bytes(), d.direct()});
    plan.host_bytes = p.host_bytes(), plan.device_bytes = p.device_bytes();
    plan.engine = p.engine(), plan.engine_reason = p.engine_reason();
    plan.read_bytes_per_step = p.read_bytes_per_step();
    plan.write_bytes_per_step = p.write_bytes_per_step();
    plan.drive_bytes_per_second = p.drive_bytes_per_second();
    plan.drive_source = p.drive_source();
    plan.expected_seconds_per_step = p.expected_seconds_per_step();
    plan.tier_tiles = p.tier_tiles(), plan.shards_kept = p.shards_kept();
    ASSERT_EQ(plugin::write_report(refusals, &plan), want.SerializeAsString());
  }
}

TEST(Wire, a_report_is_accepted_only_with_a_plan_and_without_refusals) {
  const plugin::PlanReport plan;
  v1::BindReport report;
  ASSERT_TRUE(report.ParseFromString(plugin::write_report({}, &plan)));
  EXPECT_TRUE(report.accepted() && report.has_plan());
  ASSERT_TRUE(report.ParseFromString(plugin::write_report({}, nullptr)));
  EXPECT_FALSE(report.accepted() || report.has_plan());
  ASSERT_TRUE(report.ParseFromString(plugin::write_report({{"a", "b", "c", "d"}}, &plan)));
  EXPECT_FALSE(report.accepted());
  ASSERT_EQ(report.refusals_size(), 1);
  EXPECT_EQ(report.refusals(0).remedy(), "d");
}

TEST(Wire, every_truncation_is_refused_or_read_alike) {
  const std::string whole = good_profile().SerializeAsString();
  int refused = 0;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const std::string bytes = whole.substr(0, size);
    v1::HostProfile official;
    const bool parses = official.ParseFromString(bytes);
    ASSERT_EQ(failure(bytes).has_value(), !parses) << size;
    refused += !parses;
    if (!parses) continue;
    ASSERT_EQ(difference(plugin::read_profile(bytes.data(), bytes.size()), official), "");
  }
  EXPECT_GT(refused, static_cast<int>(whole.size()) * 9 / 10);
}

TEST(Wire, what_is_read_from_damaged_bytes_is_what_the_official_library_reads) {
  std::mt19937_64 random(3);
  const std::string whole = good_profile().SerializeAsString();
  int read_anyway = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole;
    for (std::uint64_t n = random() % 3 + 1; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (failure(bytes)) continue;
    v1::HostProfile official;
    ASSERT_TRUE(official.ParseFromString(bytes)) << i;
    ASSERT_EQ(difference(plugin::read_profile(bytes.data(), bytes.size()), official), "") << i;
    ++read_anyway;
  }
  EXPECT_GT(read_anyway, 1000);
}

TEST(Wire, unknown_fields_are_skipped) {
  const v1::HostProfile official = good_profile();
  std::string bytes = official.SerializeAsString();
  bytes += field(99, 0) + "\xFF\x01";
  bytes += field(1000, 1) + std::string(8, 'x');
  bytes += field(77, 2) + std::string("\x03", 1) + "abc";
  bytes += field(536870911, 5) + std::string(4, '\0');
  ASSERT_FALSE(failure(bytes));
  EXPECT_EQ(difference(plugin::read_profile(bytes.data(), bytes.size()), official), "");
}

TEST(Wire, a_message_field_that_comes_twice_is_merged) {
  v1::HostProfile first, second;
  first.mutable_optimizer()->set_class_name("AdamW");
  second.mutable_optimizer()->set_family(v1::FAMILY_ADAM);
  const std::string bytes = first.SerializeAsString() + second.SerializeAsString();
  const plugin::Profile profile = plugin::read_profile(bytes.data(), bytes.size());
  EXPECT_EQ(profile.optimizer_class, "AdamW");
  EXPECT_EQ(profile.optimizer_family, 1u);
}

TEST(Wire, repeated_numbers_come_packed_or_one_by_one) {
  // Shard: global_shape 5 and 6 one by one, box_shape packed.
  const std::string shard =
      field(3, 0) + "\x05" + field(3, 0) + "\x06" + field(5, 2) + "\x02\x07\x08";
  const std::string bytes = field(11, 2) + static_cast<char>(shard.size()) + shard;
  const plugin::Profile profile = plugin::read_profile(bytes.data(), bytes.size());
  EXPECT_EQ(profile.shards.at(0).global_shape, (std::vector<std::uint64_t>{5, 6}));
  EXPECT_EQ(profile.shards.at(0).box_shape, (std::vector<std::uint64_t>{7, 8}));
}

TEST(Wire, hostile_bytes_are_refused_with_their_offset) {
  struct Hostile {
    const char* what;
    std::string bytes;
    std::uint64_t offset;
    const char* words;
  };
  const std::string good = field(1, 2) + "\x01" + "x";  // three bytes: framework
  const std::string ten(10, '\xFF');
  const std::string huge_length = "\x85\x80\x80\x80\x10";  // 2^32 + 5
  std::string nine_dimensions = field(3, 2) + "\x09" + std::string(9, '\x01');
  nine_dimensions = field(11, 2) + static_cast<char>(nine_dimensions.size()) + nine_dimensions;
  const Hostile cases[] = {
      {"tag cut", good + "\x80", 3, "end inside"},
      {"varint cut", good + field(8, 0), 3, "end inside"},
      {"varint of 11 bytes", good + field(8, 0) + ten + "\x01", 3, "more than ten"},
      {"length beyond the end", good + field(2, 2) + "\x05" + "abc", 3, "cut off"},
      {"length of 2^32 + 5", good + field(2, 2) + huge_length + "abcde", 3, "cut off"},
      {"tag of 2^32 + 10", good + "\x8A\x80\x80\x80\x10" + "\x01x", 3, "tag is too large"},
      {"tag of six bytes", good + std::string("\xFD\xFF\xFF\x89\x8F\x00", 6) + "\x01", 3,
       "tag has too many bytes"},
      {"length of six bytes", good + field(2, 2) + std::string("\x81\x80\x80\x80\x80\x00", 6) + "x",
       3, "length has too many bytes"},
      {"field 0", good + field(0, 0) + "\x01", 3, "reserves"},
      {"group", good + field(20, 3), 3, "wire type"},
      {"wire type 7", good + field(20, 7), 3, "wire type"},
      {"string as varint", good + field(1, 0) + "\x01", 3, "wrong wire type"},
      {"shard as varint", good + field(11, 0) + "\x01", 3, "wrong wire type"},
      {"epoch as fixed64", good + field(8, 1) + std::string(8, 'x'), 3, "wrong wire type"},
      {"inside a message", good + field(11, 2) + "\x02" + field(2, 2) + "\x09" + "123456789", 5,
       "cut off"},
      {"not UTF-8", good + field(2, 2) + "\x02" + "a\xFF", 3, "UTF-8"},
      {"overlong UTF-8", good + field(2, 2) + "\x02" + "\xC0\x80", 3, "UTF-8"},
      {"surrogate", good + field(2, 2) + "\x03" + "\xED\xA0\x80", 3, "UTF-8"},
      {"beyond Unicode", good + field(2, 2) + "\x04" + "\xF4\x90\x80\x80", 3, "UTF-8"},
      {"nine dimensions", good + nine_dimensions, 5, "too many values"},
      {"long string", good + field(2, 2) + "\x81\x20" + std::string(4097, 'a'), 3, "too long"},
  };
  for (const Hostile& c : cases) {
    const auto error = failure(c.bytes);
    ASSERT_TRUE(error) << c.what;
    EXPECT_EQ(error->offset(), c.offset) << c.what << ": " << error->what();
    EXPECT_NE(error->reason().find(c.words), std::string::npos) << c.what << error->what();
  }
  EXPECT_FALSE(failure(field(2, 2) + "\x80\x20" + std::string(4096, 'a'))) << "4096 is allowed";
}

TEST(Wire, floods_of_empty_messages_are_refused_before_they_are_kept) {
  const auto flood = [](int number, std::size_t count) {
    std::string bytes;
    for (std::size_t i = 0; i < count; ++i) bytes += field(number, 2) + std::string(1, '\0');
    return bytes;
  };
  EXPECT_TRUE(failure(flood(9, 4097)));
  EXPECT_FALSE(failure(flood(9, 4096)));
  EXPECT_TRUE(failure(flood(7, 65)));
  EXPECT_TRUE(failure(flood(10, 1'000'001)));
  EXPECT_TRUE(failure(flood(11, 10'000'001)));
}

TEST(Wire, sizes_and_pointers_are_checked_first) {
  EXPECT_NO_THROW(plugin::read_profile(nullptr, 0));
  EXPECT_THROW(plugin::read_profile(nullptr, 1), Error);
  const char byte = 0;
  EXPECT_THROW(plugin::read_profile(&byte, (1ull << 30) + 1), Error);
}

}  // namespace
}  // namespace millpond::tests
