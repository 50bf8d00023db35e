// state/1: what is written is read, moments come into being, bounds are checked.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/store/training.h"

namespace millpond::tests {
namespace {

class State : public ::testing::TestWithParam<const char*> {
 protected:
  State()
      : job_(scratch_.path(),
             std::string("\"tile_elements\": 4096, \"moments\": \"") + GetParam() + "\""),
        training_(job_, "s",
                  {{"a", 10000, 0, 0}, {"b", 300, 0, 0}, {"n", 500, 0, 1, MILLPOND_DTYPE_FP32}}) {
    Status status;
    EXPECT_EQ(training_.bind(&status), MILLPOND_OK) << status.text();
  }

  std::int32_t write(std::size_t shard, std::uint32_t segment, std::uint64_t begin,
                     const std::vector<float>& values, Status* status) {
    return states().write(training_.store, 1000 + shard, segment, begin, values.size(),
                          values.data(), status);
  }

  TemporaryDirectory scratch_;
  Job job_;
  Training training_;
};

// Relative step of the stored format.
double precision() {
  const std::string moments = State::GetParam();
  return moments == "fp32"   ? 0
         : moments == "bf16" ? std::ldexp(1, -8)
         : moments == "fp16" ? std::ldexp(1, -10)
                             : std::ldexp(1, -3);
}

TEST_P(State, ranges_come_back_and_the_rest_stays) {
  Status status;
  for (std::uint32_t segment = 0; segment < 3; ++segment) {
    const double tolerance = segment == 0 ? 0 : precision();
    std::vector<float> expected = training_.read(0, segment);
    if (segment != 0) {
      for (const float value : expected) ASSERT_EQ(value, 0.0f) << "moments do not exist yet";
    }
    for (const auto& [begin, count] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
             {0, 1}, {255, 2}, {4000, 200}, {8191, 2}, {9999, 1}, {100, 9000}, {10000, 0}}) {
      std::vector<float> values(count);
      for (std::uint64_t i = 0; i < count; ++i) {
        values[i] = 1.0f + 0.5f * static_cast<float>((i * 37 + begin) % 64) / 64.0f;
        expected[begin + i] = values[i];
      }
      ASSERT_EQ(write(0, segment, begin, values, &status), MILLPOND_OK) << status.text();
      const std::vector<float> got = training_.read(0, segment);
      for (std::uint64_t i = 0; i < got.size(); ++i) {
        ASSERT_LE(std::fabs(got[i] - expected[i]), tolerance * std::fabs(expected[i]))
            << segment << " at " << i << " after writing at " << begin;
      }
      std::vector<float> part(count);
      ASSERT_EQ(states().read(training_.store, 1000, segment, begin, count, part.data(), &status),
                MILLPOND_OK)
          << status.text();
      for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(part[i], got[begin + i]);
    }
  }
  for (const float value : training_.read(1, MILLPOND_SEGMENT_EXP_AVG)) ASSERT_EQ(value, 0.0f);
}

TEST_P(State, bounds_and_names_are_checked) {
  Status status;
  float value = 0;
  EXPECT_EQ(states().read(training_.store, 7, 0, 0, 1, &value, &status), MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status.field, "shard_id");
  EXPECT_EQ(states().read(training_.store, 1000, 3, 0, 1, &value, &status), MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status.field, "segment");
  EXPECT_EQ(states().read(training_.store, 1002, 0, 0, 1, &value, &status), MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status.field, "segment");
  EXPECT_EQ(states().read(training_.store, 1000, 0, 10000, 1, &value, &status),
            MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status.field, "count");
  EXPECT_EQ(states().read(training_.store, 1000, 0, 5, UINT64_MAX, &value, &status),
            MILLPOND_E_ARGUMENT);
  EXPECT_EQ(states().write(training_.store, 1000, 0, 0, 1, nullptr, &status), MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status.field, "values");
  EXPECT_EQ(states().get_step(training_.store, 1000, nullptr, &status), MILLPOND_E_ARGUMENT);
}

INSTANTIATE_TEST_SUITE_P(Moments, State, ::testing::Values("fp32", "bf16", "fp16", "fp8_e4m3"),
                         [](const auto& info) { return std::string(info.param); });

// Another program's state, written in through state/1, goes on as that program would have.
TEST(StateOf, B27_imported_moments_and_counters_continue_bit_equal) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 4096, \"host_memory_bytes\": 200000");
  Training first(job, "first", {{"a", 9000, 0, 0}, {"n", 700, 2, 1, MILLPOND_DTYPE_FP32}});
  Status status;
  ASSERT_EQ(first.bind(&status), MILLPOND_OK) << status.text();
  first.train(1, 9);
  Training second(job, "second", first.parameters, 1);
  second.models = first.models;
  ASSERT_EQ(second.bind(&status), MILLPOND_OK) << status.text();
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::uint32_t s = i == 1 ? 1 : 0; s < 3; ++s) {
      const std::vector<float> values = first.read(i, s);
      ASSERT_EQ(states().write(second.store, 1000 + i, s, 0, values.size(), values.data(), &status),
                MILLPOND_OK)
          << status.text();
    }
    ASSERT_EQ(states().set_step(second.store, 1000 + i, first.counter(i), &status), MILLPOND_OK);
  }
  second.plain = first.plain;
  EXPECT_EQ(second.state_differs(), "");
  second.train(10, 16);
  EXPECT_EQ(second.models_differ() + second.state_differs(), "");
}

// R02: a counter of 0 is a value like any other.
TEST(StateOf, R02_counter_zero_is_taken) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 4096");
  Training training(job, "s", {{"a", 500, 0, 0}});
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  for (std::uint64_t number = 1; number <= 3; ++number) training.train(number);
  ASSERT_EQ(states().set_step(training.store, 1000, 0, &status), MILLPOND_OK) << status.text();
  training.plain[0].step = 0;
  for (std::uint64_t number = 4; number <= 8; ++number) training.train(number);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

}  // namespace
}  // namespace millpond::tests
