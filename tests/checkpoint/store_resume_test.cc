// Saves and loads of whole stores: what is resumed goes on as if nothing had happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/checkpoint/saved_training.h"

namespace millpond::tests {
namespace {

class Resume : public ::testing::Test {
 protected:
  std::string path() const { return saved_.path() + "/iter_10/state"; }
  static void bind(Training& training) {
    Status status;
    ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  }
  static void expect_equal(Training& training) {
    EXPECT_EQ(training.models_differ() + training.state_differs(), "");
  }

  TemporaryDirectory scratch_, saved_;
  Status status_;
};

TEST_F(Resume, B25_B27_B29_a_resumed_run_equals_the_uninterrupted_one_and_a_cold_one_does_not) {
  Job job(scratch_.path(), kSmallTiles);
  Training first(job, "rank00000/opt0_0", usual_parameters());
  bind(first);
  first.train(1, 10);
  ASSERT_EQ(save(first, path(), &status_), MILLPOND_OK) << status_.text();
  expect_equal(first);
  const std::vector<PlainParameter> saved = first.plain;

  Job other(scratch_.path(), kSmallTiles);
  Training resumed(other, "rank00000/opt0_0", usual_parameters(), 77);
  bind(resumed);
  EXPECT_TRUE(resumed.models != first.models);
  ASSERT_EQ(load(resumed, path(), &status_), MILLPOND_OK) << status_.text();
  take_over(resumed, saved);
  expect_equal(resumed);
  EXPECT_TRUE(resumed.models == first.models);

  Training cold(other, "rank00000/opt0_1", usual_parameters(), 77);
  bind(cold);
  for (std::size_t i = 0; i < cold.models.size(); ++i) cold.models[i] = first.models[i];
  millpond_refresh_args refresh{};
  refresh.header = {sizeof(refresh), MILLPOND_TYPE_REFRESH_ARGS};
  ASSERT_EQ(table().refresh_main(cold.store, &refresh, &status_), MILLPOND_OK) << status_.text();

  // The same gradients for all three.
  for (std::uint64_t number = 11; number <= 20; ++number) {
    const Training::Step step = first.make_step(number);
    ASSERT_EQ(first.step(step, &status_), MILLPOND_OK) << status_.text();
    ASSERT_EQ(resumed.step(step, &status_), MILLPOND_OK) << status_.text();
    ASSERT_EQ(cold.step(step, &status_), MILLPOND_OK) << status_.text();
    first.resident_step(step);
    resumed.resident_step(step);
    EXPECT_TRUE(resumed.models == first.models) << number;
    EXPECT_TRUE(cold.models != first.models) << number;
  }
  expect_equal(first);
  expect_equal(resumed);
}

TEST_F(Resume, B27_one_counter_for_a_group_comes_back_and_the_hosts_hyperparameters_win) {
  Job job(scratch_.path(), kSmallTiles);
  Training first(job, "s", usual_parameters(), 1, v1::COUNTER_PER_GROUP);
  bind(first);
  first.train(1, 6);
  ASSERT_EQ(save(first, path(), &status_), MILLPOND_OK) << status_.text();
  Job other(scratch_.path(), kSmallTiles);
  Training resumed(other, "s", usual_parameters(), 2, v1::COUNTER_PER_GROUP);
  bind(resumed);
  ASSERT_EQ(load(resumed, path(), &status_), MILLPOND_OK) << status_.text();
  take_over(resumed, first.plain);
  resumed.train(150, 155);  // other learning rates and betas than the saving run ever had
  expect_equal(resumed);
}

TEST_F(Resume, B28_moments_are_there_when_a_load_comes_before_the_first_step) {
  Job job(scratch_.path(), kSmallTiles);
  Training first(job, "s", usual_parameters());
  bind(first);
  first.train(1);
  ASSERT_EQ(save(first, path(), &status_), MILLPOND_OK) << status_.text();
  Job other(scratch_.path(), kSmallTiles);
  Training fresh(other, "s", usual_parameters(), 3);
  bind(fresh);
  ASSERT_EQ(load(fresh, path(), &status_), MILLPOND_OK) << status_.text();
  EXPECT_EQ(fresh.read(0, 1), first.plain[0].exp_avg);
  EXPECT_EQ(fresh.read(5, 2), first.plain[5].exp_avg_sq);
  take_over(fresh, first.plain);
  fresh.train(2, 5);
  expect_equal(fresh);
}

TEST_F(Resume, R02_a_checkpoint_of_step_0_takes_counters_and_moments_back) {
  Job job(scratch_.path(), kSmallTiles);
  Training training(job, "s", usual_parameters());
  bind(training);
  ASSERT_EQ(save(training, path(), &status_), MILLPOND_OK) << status_.text();
  const std::vector<PlainParameter> begin = training.plain;
  training.train(1, 3);
  ASSERT_EQ(load(training, path(), &status_), MILLPOND_OK) << status_.text();
  take_over(training, begin);
  for (std::size_t i = 0; i < training.parameters.size(); ++i) EXPECT_EQ(training.counter(i), 0U);
  expect_equal(training);
  millpond_step_figures figures{};
  figures.header = {sizeof(figures), MILLPOND_TYPE_STEP_FIGURES};
  training.train(4, 6);
  ASSERT_EQ(reports().last_step(training.store, &figures, &status_), MILLPOND_OK);
  EXPECT_EQ(figures.step, 3U);  // the store's own count went back as well
  expect_equal(training);
}

TEST_F(Resume, a_moment_that_a_tile_does_not_have_yet_is_zero_after_a_load) {
  Job job(scratch_.path(), kSmallTiles);
  Training training(job, "s", {{"a", 20'000, 0, 0}, {"b", 20'000, 0, 0}});
  bind(training);
  Training::Step step = training.make_step(1);
  step.has_grad = {1, 0};
  step.pointers[1] = nullptr;
  ASSERT_EQ(training.step(step, &status_), MILLPOND_OK) << status_.text();
  training.resident_step(step);
  ASSERT_EQ(save(training, path(), &status_), MILLPOND_OK) << status_.text();
  const std::vector<PlainParameter> saved = training.plain;
  training.train(2, 4);
  ASSERT_EQ(load(training, path(), &status_), MILLPOND_OK) << status_.text();
  take_over(training, saved);
  expect_equal(training);
  training.train(5, 7);
  expect_equal(training);
}

// Identity decides, not position: another order of parameters, other tiles, blocks and buckets.
TEST_F(Resume, layouts_may_differ) {
  Job job(scratch_.path(), kSmallTiles);
  Training first(job, "s", usual_parameters());
  bind(first);
  first.train(1, 4);
  ASSERT_EQ(save(first, path(), &status_), MILLPOND_OK) << status_.text();
  const char* layouts[] = {
      "\"tile_elements\": 8192, \"block_elements\": 4096, \"bucket_elements\": 3000",
      "\"tile_elements\": 16384, \"block_elements\": 8192",
      "\"tile_elements\": 4096, \"bucket_elements\": 1, \"host_memory_bytes\": 200000",
  };
  for (const char* layout : layouts) {
    Job other(scratch_.path(), layout);
    std::vector<Parameter> parameters = usual_parameters();
    std::vector<PlainParameter> plain = first.plain;
    std::reverse(parameters.begin(), parameters.end());
    std::reverse(plain.begin(), plain.end());
    for (Parameter& parameter : parameters) parameter.host_bucket = 9 - parameter.host_bucket;
    Training resumed(other, "s", parameters, 5);
    bind(resumed);
    ASSERT_EQ(load(resumed, path(), &status_), MILLPOND_OK) << layout << status_.text();
    take_over(resumed, plain);
    expect_equal(resumed);
    resumed.train(5, 8);
    expect_equal(resumed);
    // And back, from that layout into the first.
    const std::string back = saved_.path() + "/back";
    ASSERT_EQ(save(resumed, back, &status_), MILLPOND_OK) << status_.text();
    const std::vector<PlainParameter> later = resumed.plain;
    Job third(scratch_.path(), kSmallTiles);
    Training again(third, "s", usual_parameters(), 6);
    bind(again);
    ASSERT_EQ(load(again, back, &status_), MILLPOND_OK) << status_.text();
    take_over(again, {later.rbegin(), later.rend()});
    expect_equal(again);
  }
}

TEST_F(Resume, parameters_are_written_unless_the_host_wants_to_keep_its_own) {
  Job job(scratch_.path(), kSmallTiles);
  Training training(job, "s", usual_parameters());
  bind(training);
  training.train(1, 3);
  ASSERT_EQ(save(training, path(), &status_), MILLPOND_OK) << status_.text();
  const std::vector<PlainParameter> saved = training.plain;
  training.train(4, 5);
  const auto models = training.models;
  ASSERT_EQ(load(training, path(), &status_, MILLPOND_IO_KEEP_MODEL), MILLPOND_OK);
  EXPECT_TRUE(training.models == models);
  EXPECT_TRUE(training.read(0, 0) == saved[0].main);
  ASSERT_EQ(load(training, path(), &status_), MILLPOND_OK);
  EXPECT_TRUE(training.models != models);
  // A parameter that is its own main is the host's to restore.
  EXPECT_TRUE(training.models[4] == models[4]);
  take_over(training, saved);
  expect_equal(training);
}

TEST_F(Resume, without_streamed_state_the_model_is_taken_only_when_asked_for) {
  Job job(scratch_.path(), kSmallTiles);
  Training training(job, "s", usual_parameters());
  bind(training);
  training.train(1, 3);
  const Everything before = everything(training);
  std::filesystem::create_directories(path());
  for (const std::string& where : {path(), path() + "/absent"}) {
    EXPECT_EQ(load(training, where, &status_), MILLPOND_E_MISSING) << status_.text();
    EXPECT_EQ(everything(training), before);
  }
  for (const std::string& where : {path(), path() + "/absent"}) {
    for (auto& model : training.models) {
      if (!model.empty()) model[0] = static_cast<std::uint8_t>(model[0] ^ 1);
    }
    ASSERT_EQ(load(training, where, &status_, MILLPOND_IO_INIT_FROM_MODEL), MILLPOND_OK)
        << status_.text();
    EXPECT_TRUE(job.log_has("mains taken from the model"));
    training.refresh_oracle();
    for (PlainParameter& plain : training.plain) {
      std::fill(plain.exp_avg.begin(), plain.exp_avg.end(), 0.0F);
      std::fill(plain.exp_avg_sq.begin(), plain.exp_avg_sq.end(), 0.0F);
      plain.step = 0;
    }
    expect_equal(training);
    training.train(4, 6);
    expect_equal(training);
  }
  // Where there is a checkpoint it is loaded.
  ASSERT_EQ(save(training, path(), &status_), MILLPOND_OK);
  const Everything saved = everything(training);
  training.train(7);
  ASSERT_EQ(load(training, path(), &status_, MILLPOND_IO_INIT_FROM_MODEL), MILLPOND_OK);
  EXPECT_EQ(everything(training).segments, saved.segments);
  // And a damaged one is no reason to start anew.
  write_file(only_save(path()) / "COMMIT.json", "{}");
  EXPECT_EQ(load(training, path(), &status_, MILLPOND_IO_INIT_FROM_MODEL), MILLPOND_E_CORRUPT);
}

TEST_F(Resume, B41_a_store_of_empty_shards_saves_and_loads) {
  Job job(scratch_.path(), kSmallTiles);
  Training training(job, "s", {{"nothing", 0, 0, 0}, {"none", 0, 1, 0, MILLPOND_DTYPE_FP32}});
  bind(training);
  training.train(1, 2);
  ASSERT_EQ(save(training, path(), &status_), MILLPOND_OK) << status_.text();
  training.train(3, 4);
  ASSERT_EQ(load(training, path(), &status_), MILLPOND_OK) << status_.text();
  EXPECT_LE(training.counter(0), 2U);
  training.train(5);
}

TEST_F(Resume, B42_parked_state_is_saved) {
  Job job(scratch_.path(), kSmallTiles);
  Training training(job, "s", usual_parameters());
  bind(training);
  training.train(1, 3);
  ASSERT_EQ(table().unbind(training.store, &status_), MILLPOND_OK) << status_.text();
  ASSERT_EQ(save(training, path(), &status_), MILLPOND_OK) << status_.text();
  EXPECT_EQ(load(training, path(), &status_), MILLPOND_E_STATE);
  Job other(scratch_.path(), kSmallTiles);
  Training resumed(other, "s", usual_parameters(), 8);
  bind(resumed);
  ASSERT_EQ(load(resumed, path(), &status_), MILLPOND_OK) << status_.text();
  take_over(resumed, training.plain);
  EXPECT_EQ(resumed.state_differs(), "");
}

// Every format of the moments: what comes back is what was there, bit by bit.
class Formats : public Resume, public ::testing::WithParamInterface<const char*> {};

TEST_P(Formats, come_back_bit_by_bit_through_other_blocks) {
  const std::string moments = std::string(", \"moments\": \"") + GetParam() + "\"";
  Job job(scratch_.path(), kSmallTiles + moments);
  Training training(job, "s", usual_parameters());
  bind(training);
  for (std::uint64_t number = 1; number <= 4; ++number) {
    ASSERT_EQ(training.step(training.make_step(number), &status_), MILLPOND_OK);
  }
  ASSERT_EQ(save(training, path(), &status_), MILLPOND_OK) << status_.text();
  const Everything saved = everything(training);
  const std::vector<std::uint8_t> own_main = training.models[4];
  const Training::Step next = training.make_step(5);
  Everything stepped;
  for (const char* layout : {kSmallTiles, "\"tile_elements\": 8192, \"block_elements\": 8192"}) {
    Job other(scratch_.path(), layout + moments);
    Training resumed(other, "s", usual_parameters(), 4);
    bind(resumed);
    // Its own main: the host restores it.
    resumed.models[4] = own_main;
    ASSERT_EQ(load(resumed, path(), &status_), MILLPOND_OK) << status_.text();
    EXPECT_EQ(everything(resumed), saved);
    ASSERT_EQ(resumed.step(next, &status_), MILLPOND_OK) << status_.text();
    if (stepped.models.empty()) {
      ASSERT_EQ(training.step(next, &status_), MILLPOND_OK) << status_.text();
      stepped = everything(training);
    }
    EXPECT_EQ(everything(resumed), stepped);
  }
}

INSTANTIATE_TEST_SUITE_P(Moments, Formats,
                         ::testing::Values("fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(Resume, B32_another_format_is_refused_unless_the_conversion_is_asked_for) {
  const std::string fp32 = std::string(kSmallTiles) + ", \"moments\": \"fp32\"";
  const std::string bf16 = std::string(kSmallTiles) + ", \"moments\": \"bf16\"";
  for (const bool widening : {false, true}) {
    const std::string where = path() + (widening ? "/a" : "/b");
    Job job(scratch_.path(), widening ? bf16 : fp32);
    Training training(job, "s", usual_parameters());
    bind(training);
    for (std::uint64_t n = 1; n <= 3; ++n) {
      ASSERT_EQ(training.step(training.make_step(n), &status_), MILLPOND_OK);
    }
    ASSERT_EQ(save(training, where, &status_), MILLPOND_OK) << status_.text();
    Job other(scratch_.path(), widening ? fp32 : bf16);
    Training resumed(other, "s", usual_parameters(), 4);
    bind(resumed);
    const Everything before = everything(resumed);
    EXPECT_EQ(load(resumed, where, &status_), MILLPOND_E_MISMATCH);
    EXPECT_NE(std::string(status_.message).find("exp_avg"), std::string::npos) << status_.message;
    EXPECT_NE(std::string(status_.message).find("bf16"), std::string::npos) << status_.message;
    EXPECT_EQ(everything(resumed), before);
    ASSERT_EQ(load(resumed, where, &status_, MILLPOND_IO_CONVERT), MILLPOND_OK) << status_.text();
    EXPECT_TRUE(other.log_has(widening ? "exp_avg converted from bf16 to fp32"
                                       : "exp_avg converted from fp32 to bf16"));
    for (std::size_t i = 0; i < resumed.parameters.size(); ++i) {
      for (std::uint32_t s = resumed.parameters[i].model == MILLPOND_DTYPE_FP32 ? 1 : 0; s < 3;
           ++s) {
        const std::vector<float> from = training.read(i, s), to = resumed.read(i, s);
        for (std::size_t e = 0; e < from.size(); ++e) {
          const float wanted = s == 0 || widening ? from[e]
                                                  : from_half(to_half(from[e], MILLPOND_DTYPE_BF16),
                                                              MILLPOND_DTYPE_BF16);
          ASSERT_EQ(to[e], wanted) << i << " " << s << " " << e;
        }
      }
    }
  }
}

}  // namespace
}  // namespace millpond::tests
