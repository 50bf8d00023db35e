// What a person reads when a call fails.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "millpond/client/plugin_error.h"

namespace millpond::client {
namespace {

millpond_status status_with(std::int32_t code, const char* message) {
  millpond_status status = new_status();
  status.code = code;
  std::strncpy(status.message, message, sizeof(status.message) - 1);
  return status;
}

TEST(Words, status_becomes_an_error_with_every_field) {
  millpond_status status = status_with(MILLPOND_E_NO_SPACE, "reserve /x: wanted 10, got 4");
  status.native = 28;
  status.native_kind = MILLPOND_NATIVE_ERRNO;
  status.flags = MILLPOND_STATUS_POISONED;
  status.offset = 4096;
  status.wanted = 10;
  status.got = 4;
  std::strcpy(status.field, "options.scratch");
  const PluginError error(MILLPOND_E_NO_SPACE, status);
  EXPECT_EQ(error.code(), MILLPOND_E_NO_SPACE);
  EXPECT_EQ(error.native(), 28);
  EXPECT_EQ(error.native_kind(), MILLPOND_NATIVE_ERRNO);
  EXPECT_EQ(error.offset(), 4096U);
  EXPECT_EQ(error.wanted(), 10U);
  EXPECT_EQ(error.got(), 4U);
  EXPECT_EQ(error.field_name(), "options.scratch");
  EXPECT_TRUE(error.poisoned());
  EXPECT_STREQ(error.what(), "reserve /x: wanted 10, got 4 [E_NO_SPACE]");
}

TEST(Words, what_means_nothing_stays_unset) {
  const PluginError error(MILLPOND_E_STATE, status_with(MILLPOND_E_STATE, "step: not bound"));
  EXPECT_EQ(error.offset(), kNoValue);
  EXPECT_EQ(error.wanted(), kNoValue);
  EXPECT_EQ(error.got(), kNoValue);
  EXPECT_FALSE(error.poisoned());
}

TEST(Words, fields_without_their_zero_are_not_read_past_the_end) {
  millpond_status status = new_status();
  status.code = MILLPOND_E_IO;
  std::memset(status.field, 'f', sizeof(status.field));
  std::memset(status.message, 'm', sizeof(status.message));
  const PluginError error(MILLPOND_E_IO, status);
  EXPECT_EQ(error.field_name(), std::string(sizeof(status.field), 'f'));
  EXPECT_EQ(std::string(error.what()), std::string(sizeof(status.message), 'm') + " [E_IO]");
}

TEST(Words, contradiction_between_answer_and_status_is_told) {
  const PluginError error(MILLPOND_E_IO, new_status());
  EXPECT_EQ(error.code(), MILLPOND_E_IO);
  EXPECT_NE(std::string(error.what()).find("contradicts"), std::string::npos);
}

TEST(Words, unknown_codes_have_a_number) {
  EXPECT_EQ(code_name(MILLPOND_E_INTERNAL), "E_INTERNAL");
  EXPECT_EQ(code_name(99), "code 99");
  EXPECT_EQ(code_name(-1), "code -1");
}

TEST(Words, every_refusal_has_its_lines) {
  const BindRefused error(MILLPOND_E_REFUSED, status_with(MILLPOND_E_REFUSED, "bind: refused"),
                          {{"feature_active", "param.fp8", "It is active.", "Turn it off."},
                           {"duplicate", "layer.weight", "Twice.", ""}});
  EXPECT_STREQ(error.what(),
               "bind refused, 2 reasons:\n"
               "  1. param.fp8: It is active. [feature_active]\n"
               "     What to do: Turn it off.\n"
               "  2. layer.weight: Twice. [duplicate]");
}

}  // namespace
}  // namespace millpond::client
