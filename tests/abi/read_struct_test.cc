// Structs of every size a host could have been compiled with.
#include "plugin/exports/read_struct.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "millpond/error.hpp"

namespace {

using namespace millpond::plugin;
using millpond::Error;

void expect_error(int32_t code, const std::string& field, const std::function<void()>& body) {
  try {
    body();
    FAIL() << "no error for " << field;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(error.field_name(), field) << error.what();
    EXPECT_GT(std::strlen(error.what()), 10u);
  }
}

millpond_step_args step_args() {
  millpond_step_args args{};
  args.header = {sizeof(args), MILLPOND_TYPE_STEP_ARGS};
  args.config_epoch = 7;
  args.grad_scale = 2.0f;
  return args;
}

TEST(ReadStruct, the_same_size_is_copied) {
  const millpond_step_args args = step_args();
  const millpond_step_args read = read_struct(&args);
  EXPECT_EQ(std::memcmp(&args, &read, sizeof(args)), 0);
}

TEST(ReadStruct, null_wrong_type_and_impossible_sizes_are_named) {
  expect_error(MILLPOND_E_ARGUMENT, "step_args",
               [] { read_struct(static_cast<const millpond_step_args*>(nullptr)); });
  millpond_step_args args = step_args();
  args.header.type = MILLPOND_TYPE_BIND_ARGS;
  expect_error(MILLPOND_E_ARGUMENT, "step_args.header.type", [&] { read_struct(&args); });
  for (const uint32_t size : {0u, 8u, uint32_t{sizeof(args)} - 1, 0x10001u, 0xFFFFFFFFu}) {
    args = step_args();
    args.header.size = size;
    expect_error(MILLPOND_E_ARGUMENT, "step_args.header.size", [&] { read_struct(&args); });
  }
}

TEST(ReadStruct, a_zero_tail_is_taken_a_set_one_is_refused_with_its_offset) {
  struct {
    millpond_step_args args = step_args();
    unsigned char tail[24] = {};
  } newer;
  newer.args.header.size = sizeof(millpond_step_args) + 24;
  EXPECT_EQ(read_struct(&newer.args).config_epoch, 7u);
  for (uint64_t i = 0; i < 24; ++i) {
    std::memset(newer.tail, 0, sizeof(newer.tail));
    newer.tail[i] = 1;
    try {
      read_struct(&newer.args);
      FAIL() << i;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), MILLPOND_E_UNKNOWN_TAIL);
      EXPECT_EQ(error.field_name(), "step_args");
      EXPECT_EQ(error.offset(), sizeof(millpond_step_args) + i);
      EXPECT_EQ(error.wanted(), sizeof(millpond_step_args));
      EXPECT_EQ(error.got(), sizeof(millpond_step_args) + 24);
    }
  }
}

TEST(ReadStruct, what_an_older_filler_lacks_is_zero) {
  unsigned char to[16];
  std::memset(to, 0xAB, sizeof(to));
  const unsigned char from[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 9, 9, 9, 9};
  copy_grown(from, 8, to, 16, Named{"x"});
  for (int i = 0; i < 8; ++i) EXPECT_EQ(to[i], i + 1);
  for (int i = 8; i < 16; ++i) EXPECT_EQ(to[i], 0);
}

TEST(ReadStruct, reserved_fields_must_be_zero) {
  millpond_step_args args = step_args();
  args.reserved[2] = 1;
  expect_error(MILLPOND_E_ARGUMENT, "step_args.reserved", [&] { read_struct(&args); });
  millpond_shard_pointers pointers[2] = {};
  pointers[1].main.reserved = 5;
  std::vector<millpond_shard_pointers> into;
  expect_error(MILLPOND_E_ARGUMENT, "bind_args.shards[1].main.reserved", [&] {
    read_span({pointers, 2, sizeof(pointers[0])}, "bind_args.shards", 2, into);
  });
}

TEST(ReadSpan, strides_larger_than_the_element_are_followed) {
  struct Newer {
    millpond_group_step group;
    uint64_t tail;
  } groups[3] = {};
  for (uint64_t i = 0; i < 3; ++i) groups[i].group.id = 10 + i;
  std::vector<millpond_group_step> into;
  const millpond_span span = {groups, 3, sizeof(Newer)};
  read_span(span, "step_args.groups", 3, into);
  ASSERT_EQ(into.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(into[i].id, 10 + i);
  groups[2].tail = 1;
  expect_error(MILLPOND_E_UNKNOWN_TAIL, "step_args.groups[2]",
               [&] { read_span(span, "step_args.groups", 3, into); });
}

TEST(ReadSpan, elements_may_lie_at_any_address) {
  std::vector<unsigned char> memory(3 * 65 + 1);
  for (uint64_t i = 0; i < 3; ++i) {
    millpond_group_step group{};
    group.id = 20 + i;
    std::memcpy(memory.data() + 1 + i * 65, &group, sizeof(group));
  }
  std::vector<millpond_group_step> into;
  read_span({memory.data() + 1, 3, 65}, "step_args.groups", 3, into);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(into[i].id, 20 + i);
}

TEST(ReadSpan, bad_spans_are_named) {
  millpond_group_step groups[2] = {};
  std::vector<millpond_group_step> into;
  auto read = [&](millpond_span span, uint64_t expected) {
    read_span(span, "step_args.groups", expected, into);
  };
  const uint64_t stride = sizeof(groups[0]);
  expect_error(MILLPOND_E_ARGUMENT, "step_args.groups.count", [&] {
    read({groups, 2, stride}, 3);
  });
  expect_error(MILLPOND_E_ARGUMENT, "step_args.groups.ptr", [&] { read({nullptr, 2, stride}, 2); });
  for (const uint64_t bad : {uint64_t{0}, stride - 1, UINT64_MAX}) {
    expect_error(MILLPOND_E_ARGUMENT, "step_args.groups.stride", [&] {
      read({groups, 2, bad}, 2);
    });
  }
  expect_error(MILLPOND_E_ARGUMENT, "step_args.groups.count", [&] {
    read({groups, UINT64_MAX / 2, stride}, UINT64_MAX / 2);
  });
  read({nullptr, 0, 0}, 0);
  EXPECT_TRUE(into.empty());
}

TEST(WriteStruct, an_older_caller_gets_what_it_knows_a_newer_one_zeros) {
  millpond_plan_figures figures{};
  figures.shards = 3;
  figures.tier_tiles = 9;
  struct {
    millpond_plan_figures figures;
    uint64_t tail[2];
  } to;
  std::memset(&to, 0xAB, sizeof(to));
  to.figures.header = {sizeof(figures) + 8, MILLPOND_TYPE_PLAN_FIGURES};
  write_struct(figures, &to.figures);
  EXPECT_EQ(to.figures.header.size, sizeof(figures) + 8);
  EXPECT_EQ(to.figures.shards, 3u);
  EXPECT_EQ(to.figures.tier_tiles, 9u);
  EXPECT_EQ(to.tail[0], 0u);
  EXPECT_EQ(to.tail[1], 0xABABABABABABABABu);
  to.figures.header.size = 8;
  expect_error(MILLPOND_E_ARGUMENT, "plan_figures.header.size",
               [&] { write_struct(figures, &to.figures); });
  expect_error(MILLPOND_E_ARGUMENT, "plan_figures",
               [&] { write_struct(figures, static_cast<millpond_plan_figures*>(nullptr)); });
}

TEST(ReadStr, only_utf8_with_a_pointer) {
  EXPECT_EQ(read_str({nullptr, 0}, "io_args.path"), "");
  EXPECT_EQ(read_str({"ab\xE2\x82\xAC", 5}, "io_args.path"), "ab\xE2\x82\xAC");
  expect_error(MILLPOND_E_ARGUMENT, "io_args.path.ptr", [] {
    read_str({nullptr, 3}, "io_args.path");
  });
  expect_error(MILLPOND_E_ARGUMENT, "io_args.path.len", [] {
    read_str({"abcd", 4}, "io_args.path", 3);
  });
  const std::string bad[] = {"\x80",
                             "\xC0\x80",
                             "\xC3",
                             "\xE0\x80\x80",
                             "\xED\xA0\x80",
                             "\xF0\x80\x80\x80",
                             "\xF4\x90\x80\x80",
                             "\xFF",
                             "a\xE2\x82"};
  for (const std::string& text : bad) {
    expect_error(MILLPOND_E_ARGUMENT, "io_args.path", [&] {
      read_str({text.data(), text.size()}, "io_args.path");
    });
  }
}

TEST(CheckGroup, a_rank_is_one_of_the_groups) {
  check_group({0, 0, 1});
  check_group({5, 3, 4});
  expect_error(MILLPOND_E_ARGUMENT, "group.size", [] { check_group({0, 0, 0}); });
  expect_error(MILLPOND_E_ARGUMENT, "group.rank", [] { check_group({0, 4, 4}); });
}

}  // namespace
