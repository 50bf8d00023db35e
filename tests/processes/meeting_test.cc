// Where processes wait for one another: who stays away, and who has ended. Ranks are threads here.
#include "host_adapters/processes/meeting.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "millpond/error.hpp"

namespace millpond::processes {
namespace {

TEST(MeetingTest, one_that_stays_away_is_named_and_nobody_meets_again) {
  Meeting meeting(3, 64, 0.2);
  std::vector<std::int32_t> codes(3, MILLPOND_OK);
  std::vector<std::string> words(3);
  const auto meet = [&](std::uint32_t rank) {
    try {
      meeting.meet(rank, "test");
    } catch (const Error& error) {
      codes[rank] = error.code();
      words[rank] = error.what();
    }
  };
  std::thread other([&] { meet(2); });
  meet(0);
  other.join();
  for (const std::uint32_t rank : {0U, 2U}) {
    EXPECT_TRUE(codes[rank] == MILLPOND_E_TIMEOUT || codes[rank] == MILLPOND_E_PEER);
    EXPECT_NE(words[rank].find("rank 1 did not come"), std::string::npos) << words[rank];
  }
  meet(1);
  EXPECT_EQ(codes[1], MILLPOND_E_PEER);
}

TEST(MeetingTest, one_that_ended_ends_the_others_at_once) {
  Meeting meeting(2, 64, 60.0);
  std::thread death([&] { meeting.mark_ended(1, "was ended by signal 9"); });
  try {
    meeting.meet(0, "all_gather");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_PEER);
    EXPECT_NE(std::string(error.what()).find("rank 1 was ended by signal 9"), std::string::npos);
  }
  death.join();
}

}  // namespace
}  // namespace millpond::processes
