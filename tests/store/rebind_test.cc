// A bind over an older one keeps what is known, wherever it now is.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/store/training.h"

namespace millpond::tests {
namespace {

std::vector<Parameter> parameters() {
  return {{"a", 5000, 0, 0},
          {"b", 9001, 2, 0},
          {"empty", 0, 0, 0},
          {"n", 700, 0, 1, MILLPOND_DTYPE_FP32},
          {"m", 4500, 2, 1, MILLPOND_DTYPE_FP32},
          {"c", 3000, 2, 2, MILLPOND_DTYPE_FP16, MILLPOND_DTYPE_BF16}};
}

// Puts parameters, models and oracle into another order.
void reorder(Training& training, const std::vector<std::size_t>& order) {
  std::vector<Parameter> moved_parameters;
  std::vector<std::vector<std::uint8_t>> moved_models;
  std::vector<PlainParameter> moved_plain;
  for (const std::size_t i : order) {
    moved_parameters.push_back(training.parameters[i]);
    moved_models.push_back(training.models[i]);
    moved_plain.push_back(training.plain[i]);
  }
  training.parameters = moved_parameters;
  training.models = moved_models;
  training.plain = moved_plain;
  training.ids_from += 100;  // ids are the profile's, not the parameters' identity
}

void add(Training& training, const Parameter& parameter) {
  training.parameters.push_back(parameter);
  std::vector<std::uint8_t> model(parameter.numel * bytes_of(parameter.model));
  PlainParameter plain(parameter.numel);
  for (std::uint64_t i = 0; i < parameter.numel; ++i) {
    put(model, parameter.model, i, 0.001f * static_cast<float>(i % 977));
    plain.main[i] = get(model, parameter.model, i);
  }
  training.models.push_back(model);
  training.plain.push_back(plain);
}

class Rebind : public ::testing::TestWithParam<const char*> {};

TEST_P(Rebind, keeps_shards_in_other_places_groups_and_buckets) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), std::string("\"tile_elements\": 4096, \"host_memory_bytes\": 250000, ") +
                              "\"moments\": \"" + GetParam() + "\"");
  const bool exact = std::string(GetParam()) == "fp32";
  Training training(job, "s", parameters());
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  for (std::uint64_t number = 1; number <= 6; ++number) {
    const Training::Step step = training.make_step(number);
    ASSERT_EQ(training.step(step, &status), MILLPOND_OK) << status.text();
    training.resident_step(step);
  }
  std::vector<std::vector<float>> before;
  std::vector<std::uint64_t> counters;
  const std::vector<std::size_t> order{5, 4, 0, 2, 1, 3};
  for (const std::size_t i : order) {
    const bool moments_only = training.parameters[i].model == MILLPOND_DTYPE_FP32;
    for (std::uint32_t s = moments_only ? 1 : 0; s < 3; ++s) before.push_back(training.read(i, s));
    counters.push_back(training.counter(i));
  }
  reorder(training, order);
  for (std::size_t i = 0; i < order.size(); ++i) {
    training.parameters[i].host_bucket = i / 2;
    training.parameters[i].group = i == 1 ? 4 : training.parameters[i].group;
  }
  add(training, {"new", 6000, 4, 5});
  add(training, {"new fp32", 600, 4, 0, MILLPOND_DTYPE_FP32});
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_EQ(training.report.plan().shards_kept(), order.size());
  std::vector<std::vector<float>> after;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool moments_only = training.parameters[i].model == MILLPOND_DTYPE_FP32;
    for (std::uint32_t s = moments_only ? 1 : 0; s < 3; ++s) after.push_back(training.read(i, s));
    EXPECT_EQ(training.counter(i), counters[i]) << i;
  }
  EXPECT_TRUE(before == after);
  EXPECT_EQ(training.counter(order.size()), 0u);
  if (!exact) return;
  EXPECT_EQ(training.state_differs(), "");
  for (std::uint64_t number = 7; number <= 20; ++number) training.train(number);
  EXPECT_EQ(training.models_differ(), "");
  EXPECT_EQ(training.state_differs(), "");
}

INSTANTIATE_TEST_SUITE_P(Moments, Rebind, ::testing::Values("fp32", "bf16", "fp16", "fp8_e4m3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(RebindOf, mixes_new_and_kept_shards_in_one_tile) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 65536");
  Training training(job, "s", {{"a", 500, 0, 0}, {"b", 700, 0, 0}});
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  for (std::uint64_t number = 1; number <= 4; ++number) training.train(number);
  add(training, {"fresh", 900, 0, 0});
  reorder(training, {2, 0, 1});
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_EQ(training.report.plan().tiles(), 1u);
  EXPECT_EQ(training.state_differs(), "");
  for (std::uint64_t number = 5; number <= 9; ++number) training.train(number);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

TEST(RebindOf, changed_identity_starts_anew) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 4096");
  Training training(job, "s", {{"a", 5000, 0, 0}, {"b", 700, 0, 0}});
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  for (std::uint64_t number = 1; number <= 3; ++number) training.train(number);
  training.parameters[0].key = "renamed";
  const PlainParameter was = training.plain[0];
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_EQ(training.report.plan().shards_kept(), 1u);
  training.plain[0] = PlainParameter(5000);
  for (std::uint64_t i = 0; i < 5000; ++i) {
    training.plain[0].main[i] = get(training.models[0], MILLPOND_DTYPE_BF16, i);
  }
  EXPECT_FALSE(was.main == training.plain[0].main);
  EXPECT_EQ(training.state_differs(), "");
}

TEST(RebindOf, a_new_shard_of_a_counting_group_joins_its_counter) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 4096");
  Training training(job, "s", {{"a", 5000, 0, 0}, {"b", 700, 2, 0}}, 1, v1::COUNTER_PER_GROUP);
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  for (std::uint64_t number = 1; number <= 3; ++number) training.train(number);
  add(training, {"c", 600, 2, 1});
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_EQ(training.counter(2), 3u);
  training.plain[2].step = 3;
  for (std::uint64_t number = 4; number <= 8; ++number) training.train(number);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
  ASSERT_EQ(states().set_step(training.store, training.ids_from + 1, 40, &status), MILLPOND_OK);
  EXPECT_EQ(training.counter(2), 40u) << "one counter for the group";
  EXPECT_EQ(training.counter(0), 8u);
}

TEST(RebindOf, cancelled_leaves_the_old_state_parked) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 4096, \"host_memory_bytes\": 250000");
  Training training(job, "s", parameters());
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  for (std::uint64_t number = 1; number <= 4; ++number) training.train(number);
  const std::vector<Parameter> old = training.parameters;
  training.parameters[0].host_bucket = 9;
  job.cancel = true;
  ASSERT_EQ(training.bind(&status), MILLPOND_E_CANCELLED) << status.text();
  job.cancel = false;
  EXPECT_EQ(training.step(training.make_step(5), &status), MILLPOND_E_STATE);
  EXPECT_EQ(training.state_differs(), "") << "parked";
  training.parameters = old;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  for (std::uint64_t number = 5; number <= 9; ++number) training.train(number);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

TEST(RebindOf, given_mains_are_released_by_bucket) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 4096");
  std::vector<Parameter> given = parameters();
  for (Parameter& parameter : given) {
    parameter.given_main = parameter.model != MILLPOND_DTYPE_FP32 && parameter.numel != 0;
  }
  Training training(job, "s", given);
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  ASSERT_EQ(job.released.size(), 2u);
  EXPECT_EQ(job.released[0].first, "s");
  EXPECT_EQ(job.released[0].second, (std::vector<std::uint64_t>{1000, 1001}));
  EXPECT_EQ(job.released[1].second, (std::vector<std::uint64_t>{1005}));
  EXPECT_EQ(training.state_differs(), "") << "the given mains, not the model's";
}

TEST(RebindOf, B30_refresh_takes_loaded_weights_and_keeps_moments) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 4096, \"host_memory_bytes\": 250000");
  Training training(job, "s", parameters());
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  for (std::uint64_t number = 1; number <= 3; ++number) training.train(number);
  const auto load_weights = [&](std::size_t i, float value) {
    for (std::uint64_t e = 0; e < training.parameters[i].numel; ++e) {
      put(training.models[i], training.parameters[i].model, e, value * static_cast<float>(e % 101));
      training.plain[i].main[e] = get(training.models[i], training.parameters[i].model, e);
    }
  };
  load_weights(1, 0.01f);
  millpond_refresh_args refresh{};
  refresh.header = {sizeof(refresh), MILLPOND_TYPE_REFRESH_ARGS};
  const std::uint64_t named[] = {1001};
  refresh.shard_ids = named;
  refresh.count = 1;
  ASSERT_EQ(table().refresh_main(training.store, &refresh, &status), MILLPOND_OK) << status.text();
  EXPECT_EQ(training.state_differs(), "") << "one";
  for (const std::size_t i : {0, 1, 3, 4, 5}) load_weights(i, 0.02f);
  refresh.shard_ids = nullptr;
  refresh.count = 0;
  ASSERT_EQ(table().refresh_main(training.store, &refresh, &status), MILLPOND_OK) << status.text();
  EXPECT_EQ(training.state_differs(), "") << "all";
  Training::Step still = training.make_step(4);
  for (auto& group : still.groups) group.lr = 0;
  ASSERT_EQ(training.step(still, &status), MILLPOND_OK) << status.text();
  training.resident_step(still);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
  const std::uint64_t unknown[] = {1001, 77};
  refresh.shard_ids = unknown;
  refresh.count = 2;
  EXPECT_EQ(table().refresh_main(training.store, &refresh, &status), MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status.field, "refresh_args.shard_ids[1]");
}

}  // namespace
}  // namespace millpond::tests
