// B25: whatever the engine, the size of the tier and the format of the moments are, a run that
// stops after any of 20 steps and resumes is the one that did not stop, bit for bit. Every pair of
// values of the three is there.
//
// Each resume takes two steps more, in the campaign all of the rest. Under sanitizers it begins at
// a fifth of the steps.
#include <gtest/gtest.h>

#include "tests/checkpoint/in_memory.h"
#include "tests/checkpoint/saved_training.h"
#include "tests/store/campaign.h"

namespace millpond::tests {
namespace {

constexpr std::uint64_t kSteps = 20;
constexpr std::size_t kOwnMain = 4;  // of usual_parameters(): the framework restores it
constexpr const char* kEngines[] = {"auto", "threads"};
// All of the state in memory, a half of it, two tiles.
constexpr const char* kTiers[] = {"\"auto\"", "400000", "120000"};
constexpr const char* kMoments[] = {"fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"};

struct Row {
  std::size_t engine, tier, moments;
};

std::vector<Row> every_pair() {
  std::vector<Row> rows;
  for (std::size_t tier = 0; tier < std::size(kTiers); ++tier) {
    for (std::size_t moments = 0; moments < std::size(kMoments); ++moments) {
      rows.push_back({(tier + moments) % 2, tier, moments});  // either engine meets either value
    }
  }
  return rows;
}

class ResumeEverywhere : public ::testing::TestWithParam<Row> {};

TEST_P(ResumeEverywhere, B25_at_every_step_equals_no_interruption) {
  const Row row = GetParam();
  const std::string options =
      std::string("\"tile_elements\": 4096, \"bucket_elements\": 9000, \"update_threads\": 1, ") +
      "\"io_engine\": \"" + kEngines[row.engine] +
      "\", \"host_memory_bytes\": " + kTiers[row.tier] + ", \"moments\": \"" +
      kMoments[row.moments] + "\"";
  const InMemory memory;
  const TemporaryDirectory scratch, saved;
  const auto path = [&](std::uint64_t number) {
    return saved.path() + "/" + std::to_string(number);
  };
  Status status;
  std::vector<Training::Step> steps(1);
  std::vector<Everything> after(1);
  {
    Job job(scratch.path(), options);
    Training whole(job, "s", usual_parameters());
    ASSERT_EQ(whole.bind(&status), MILLPOND_OK) << status.text();
    for (std::uint64_t number = 1; number <= kSteps; ++number) {
      steps.push_back(whole.make_step(number));
      ASSERT_EQ(whole.step(steps.back(), &status), MILLPOND_OK) << status.text();
      after.push_back(everything(whole));
      ASSERT_EQ(save(whole, path(number), &status), MILLPOND_OK) << status.text();
    }
  }
  const std::uint64_t more = in_campaign() ? kSteps : 2;
  Job job(scratch.path(), options);
  for (const std::uint64_t from : some_of(kSteps, kSteps)) {
    const std::uint64_t saved_at = from + 1;
    SCOPED_TRACE("resumed after step " + std::to_string(saved_at));
    Training resumed(job, "s", usual_parameters(), 100 + saved_at);
    ASSERT_EQ(resumed.bind(&status), MILLPOND_OK) << status.text();
    ASSERT_EQ(load(resumed, path(saved_at), &status), MILLPOND_OK) << status.text();
    resumed.models[kOwnMain] = after[saved_at].models[kOwnMain];
    ASSERT_EQ(everything(resumed), after[saved_at]);
    for (std::uint64_t next = saved_at + 1; next <= std::min(saved_at + more, kSteps); ++next) {
      ASSERT_EQ(resumed.step(steps[next], &status), MILLPOND_OK) << status.text();
      ASSERT_EQ(everything(resumed), after[next]) << "after step " << next;
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<Row>& info) {
  const std::vector<std::string> tiers = {"all", "half", "two_tiles"};
  return std::string(kEngines[info.param.engine]) + "_" + tiers[info.param.tier] + "_" +
         kMoments[info.param.moments];
}

INSTANTIATE_TEST_SUITE_P(Pairs, ResumeEverywhere, ::testing::ValuesIn(every_pair()), name_of);

}  // namespace
}  // namespace millpond::tests
