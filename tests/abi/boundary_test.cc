// The boundary: every kind of failure becomes the right status, for callers of every size of it.
#include "plugin/exports/boundary.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "millpond/error.hpp"

namespace {

using millpond::Error;
using millpond::plugin::guarded;

millpond_status fresh() {
  millpond_status status;
  std::memset(&status, 0xAB, sizeof(status));
  status.header = {sizeof(status), MILLPOND_TYPE_STATUS};
  return status;
}

TEST(Boundary, success_writes_every_field) {
  millpond_status status = fresh();
  EXPECT_EQ(guarded(&status, [] {}), MILLPOND_OK);
  EXPECT_EQ(status.code, MILLPOND_OK);
  EXPECT_EQ(status.native, 0);
  EXPECT_EQ(status.native_kind, MILLPOND_NATIVE_NONE);
  EXPECT_EQ(status.flags, 0u);
  EXPECT_EQ(status.offset, UINT64_MAX);
  EXPECT_EQ(status.wanted, UINT64_MAX);
  EXPECT_EQ(status.got, UINT64_MAX);
  for (const char c : status.field) EXPECT_EQ(c, 0);
  for (const char c : status.message) EXPECT_EQ(c, 0);
}

TEST(Boundary, an_error_says_all_it_knows) {
  millpond_status status = fresh();
  const int32_t code = guarded(&status, [] {
    throw Error(MILLPOND_E_NO_SPACE, "fallocate", "the drive is full")
        .path("scratch/bucket00003.bin")
        .at(4096)
        .want(1u << 20, 512)
        .field("options.scratch")
        .os(28)
        .remedy("Free 1 MiB");
  });
  EXPECT_EQ(code, MILLPOND_E_NO_SPACE);
  EXPECT_EQ(status.code, MILLPOND_E_NO_SPACE);
  EXPECT_EQ(status.native, 28);
  EXPECT_EQ(status.native_kind, MILLPOND_NATIVE_ERRNO);
  EXPECT_EQ(status.offset, 4096u);
  EXPECT_EQ(status.wanted, 1u << 20);
  EXPECT_EQ(status.got, 512u);
  EXPECT_STREQ(status.field, "options.scratch");
  const std::string message = status.message;
  for (const char* part : {"fallocate", "scratch/bucket00003.bin", "4096", "the drive is full",
                           "1048576", "512", "28", "Free 1 MiB"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
}

TEST(Boundary, B14_other_exceptions_do_not_cross) {
  millpond_status status = fresh();
  EXPECT_EQ(guarded(&status, [] { throw std::bad_alloc(); }), MILLPOND_E_MEMORY);
  EXPECT_EQ(status.code, MILLPOND_E_MEMORY);
  EXPECT_GT(std::strlen(status.message), 20u);
  EXPECT_EQ(guarded(&status, [] { throw std::length_error("too long"); }), MILLPOND_E_INTERNAL);
  EXPECT_STREQ(status.message, "too long");
  EXPECT_EQ(guarded(&status, [] { throw 7; }), MILLPOND_E_INTERNAL);
  EXPECT_EQ(status.code, MILLPOND_E_INTERNAL);
  EXPECT_GT(std::strlen(status.message), 0u);
}

TEST(Boundary, an_error_that_claims_success_is_a_bug) {
  millpond_status status = fresh();
  EXPECT_EQ(guarded(&status, [] { throw Error(MILLPOND_OK, "x", "y"); }), MILLPOND_E_INTERNAL);
}

TEST(Boundary, flags_travel_in_success_and_failure) {
  millpond_status status = fresh();
  guarded(&status, [](uint32_t& flags) { flags = MILLPOND_STATUS_SKIPPED; });
  EXPECT_EQ(status.flags, MILLPOND_STATUS_SKIPPED);
  guarded(&status, [](uint32_t& flags) {
    flags = MILLPOND_STATUS_POISONED;
    throw Error(MILLPOND_E_POISONED, "step", "an earlier failure");
  });
  EXPECT_EQ(status.flags, MILLPOND_STATUS_POISONED);
  guarded(&status, [] {});
  EXPECT_EQ(status.flags, 0u);
}

TEST(Boundary, a_null_status_still_gets_the_code) {
  EXPECT_EQ(guarded(nullptr, [] {}), MILLPOND_OK);
  EXPECT_EQ(guarded(nullptr, [] { throw Error(MILLPOND_E_BUSY, "save", "again"); }),
            MILLPOND_E_BUSY);
}

TEST(Boundary, a_status_with_a_wrong_header_is_refused_untouched) {
  const millpond_header wrong[] = {{sizeof(millpond_status), MILLPOND_TYPE_IO_ARGS},
                                   {0, MILLPOND_TYPE_STATUS},
                                   {11, MILLPOND_TYPE_STATUS},
                                   {0xFFFFFFFFu, MILLPOND_TYPE_STATUS}};
  for (const millpond_header header : wrong) {
    millpond_status status = fresh();
    status.header = header;
    const millpond_status before = status;
    bool ran = false;
    EXPECT_EQ(guarded(&status, [&] { ran = true; }), MILLPOND_E_ARGUMENT);
    EXPECT_FALSE(ran);
    EXPECT_EQ(std::memcmp(&before, &status, sizeof(status)), 0);
  }
}

// Every size that a caller could know: not a byte is written behind it, whole fields only.
TEST(Boundary, a_smaller_status_gets_what_fits) {
  const std::string text(2000, 'x');
  for (uint32_t size = 12; size <= sizeof(millpond_status); ++size) {
    millpond_status status = fresh();
    status.header.size = size;
    guarded(&status, [&] { throw Error(MILLPOND_E_IO, "", text).at(7).want(8, 9).field(text); });
    const auto* bytes = reinterpret_cast<const unsigned char*>(&status);
    for (size_t i = size; i < sizeof(status); ++i) ASSERT_EQ(bytes[i], 0xAB) << size << " " << i;
    EXPECT_EQ(status.code, MILLPOND_E_IO);
    EXPECT_EQ(status.wanted, size >= 40 ? 8u : 0xABABABABABABABABu);
    if (size > 48) {
      const size_t room = std::min<size_t>(size - 48, sizeof(status.field));
      EXPECT_EQ(strnlen(status.field, room), room - 1) << size;
    }
    if (size > 128) {
      EXPECT_EQ(strnlen(status.message, size - 128), size - 128 - 1) << size;
    }
  }
}

TEST(Boundary, a_larger_status_gets_zeros_behind) {
  std::vector<unsigned char> memory(sizeof(millpond_status) + 64, 0xAB);
  auto* status = reinterpret_cast<millpond_status*>(memory.data());
  status->header = {sizeof(millpond_status) + 32, MILLPOND_TYPE_STATUS};
  guarded(status, [] {});
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(memory[sizeof(millpond_status) + i], 0) << i;
  for (size_t i = 32; i < 64; ++i) EXPECT_EQ(memory[sizeof(millpond_status) + i], 0xAB) << i;
}

// Two-, three- and four-byte characters at every alignment against the cut.
TEST(Boundary, texts_are_cut_at_a_characters_border) {
  const std::string characters[] = {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x8C\x8A"};
  for (const std::string& character : characters) {
    for (size_t lead = 0; lead < character.size(); ++lead) {
      std::string text(lead, 'a');
      while (text.size() < 1200) text += character;
      millpond_status status = fresh();
      guarded(&status, [&] { throw Error(MILLPOND_E_IO, "", text); });
      const size_t length = strnlen(status.message, sizeof(status.message));
      ASSERT_LT(length, sizeof(status.message));
      EXPECT_GT(length + character.size(), sizeof(status.message) - 1);
      EXPECT_EQ((length - lead) % character.size(), 0u);
      EXPECT_EQ(text.compare(0, length, status.message), 0);
    }
  }
}

}  // namespace
