#include "checkpoint/read_cache.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace millpond::checkpoint::testing {
namespace {

class LastUsedOf : public ::testing::Test {
 protected:
  std::string& get(int key) {
    return values_.get(key, [&](std::string& value) {
      made_.push_back(key);
      value = std::to_string(key);
    });
  }
  std::vector<int> made() { return std::exchange(made_, {}); }

  LastUsed<int, std::string> values_{3};
  std::vector<int> made_;
};

TEST_F(LastUsedOf, a_value_is_made_again_when_others_were_used_since) {
  for (const int key : {1, 2, 3, 1, 2, 3}) EXPECT_EQ(get(key), std::to_string(key));
  EXPECT_EQ(made(), (std::vector<int>{1, 2, 3}));
  get(1);
  EXPECT_EQ(get(4), "4");  // in the place of 2, which was used longest ago
  for (const int key : {1, 3, 4}) EXPECT_EQ(get(key), std::to_string(key));
  EXPECT_EQ(made(), (std::vector<int>{4}));
  EXPECT_EQ(get(2), "2");
  EXPECT_EQ(made(), (std::vector<int>{2}));
}

TEST_F(LastUsedOf, a_value_that_could_not_be_made_is_not_there) {
  for (const int key : {1, 2, 3}) get(key);
  const auto fail = [](std::string& value) {
    value = "half";
    throw std::runtime_error("no");
  };
  EXPECT_THROW(values_.get(4, fail), std::runtime_error);
  EXPECT_THROW(values_.get(4, fail), std::runtime_error);
  made();
  EXPECT_EQ(get(4), "4");
  EXPECT_EQ(made(), (std::vector<int>{4}));
  EXPECT_EQ(get(1), "1");
  EXPECT_EQ(made(), (std::vector<int>{1})) << "what was in its place is gone";
}

}  // namespace
}  // namespace millpond::checkpoint::testing
