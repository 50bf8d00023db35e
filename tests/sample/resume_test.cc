// Saving and going on: with everything, with weights only, from what a killed run left.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "millpond/error.hpp"
#include "tests/sample/training_run.h"

namespace millpond::sample {
namespace {

namespace fs = std::filesystem;

Arguments kind_of_run(const TestDirectory& directory, const std::string& kind) {
  Arguments a = small_run(directory, kind == "resident" ? Mode::kResident : Mode::kStreamed);
  if (kind != "resident") a.moments = kind;
  return a;
}

class Resume : public testing::TestWithParam<const char*> {};

TEST_P(Resume, B25_goes_on_as_if_it_had_not_stopped) {
  const TestDirectory directory;
  Arguments a = kind_of_run(directory, GetParam());
  const RunResult uninterrupted = run(a);
  a.save = directory.path() / "saves";
  a.save_every = 5;
  EXPECT_EQ(run(a).digest, uninterrupted.digest) << "saving changed the run";
  EXPECT_TRUE(fs::exists(a.save / "step_00000012"));
  EXPECT_FALSE(fs::exists(a.save / "step_00000010")) << "older saves go";

  fs::remove_all(a.save);
  a.stop_after = 7;
  EXPECT_NE(run(a).digest, uninterrupted.digest);
  a.stop_after = 0;
  a.resume = a.save;
  const RunResult resumed = run(a);
  EXPECT_EQ(resumed.first_step, 8U);
  EXPECT_EQ(resumed.digest, uninterrupted.digest);
}

TEST_P(Resume, B29_weights_alone_are_not_enough) {
  const TestDirectory directory;
  Arguments a = kind_of_run(directory, GetParam());
  const std::string uninterrupted = run(a).digest;
  a.save = directory.path() / "saves";
  a.stop_after = 7;
  run(a);
  a.stop_after = 0;
  a.resume = std::exchange(a.save, fs::path());
  EXPECT_EQ(run(a).digest, uninterrupted);
  a.weights_only = true;
  EXPECT_NE(run(a).digest, uninterrupted);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Resume,
                         testing::Values("resident", "fp32", "bf16", "fp16", "fp8_e4m3",
                                         "fp8_e5m2"));

class Saved : public testing::Test {
 protected:
  void SetUp() override {
    a_ = small_run(directory_, Mode::kStreamed);
    a_.save = directory_.path() / "saves";
    a_.stop_after = 4;
    run(a_);
    a_.stop_after = 0;
    a_.resume = std::exchange(a_.save, fs::path());
  }
  // The code of the error that resuming ends with.
  std::int32_t resuming() {
    try {
      run(a_);
    } catch (const Error& error) {
      return error.code();
    }
    return MILLPOND_OK;
  }
  // Rewrites the description of step 4, and returns it.
  static std::string change_step(const fs::path& file, const std::string& to) {
    std::string text;
    {
      std::ifstream in(file);
      text.assign(std::istreambuf_iterator<char>(in), {});
    }
    text.replace(text.find("\"step\": 4"), 9, to);
    std::ofstream(file) << text;
    return text;
  }
  TestDirectory directory_;
  Arguments a_;
};

TEST_F(Saved, another_run_is_refused_by_name) {
  a_.batch = 33;
  try {
    run(a_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_MISMATCH);
    EXPECT_EQ(error.field_name(), "batch");
  }
  a_.batch = 32;
  a_.shape.hidden = 95;
  EXPECT_EQ(resuming(), MILLPOND_E_MISMATCH);
  a_.shape.hidden = 96;
  a_.moments = "bf16";
  EXPECT_EQ(resuming(), MILLPOND_E_MISMATCH);
  a_.moments = "fp32";
  a_.mode = Mode::kResident;
  EXPECT_EQ(resuming(), MILLPOND_E_MISMATCH);
  a_.mode = Mode::kStreamed;
  EXPECT_EQ(resuming(), MILLPOND_OK);
}

TEST_F(Saved, other_hyperparameters_are_refused_unless_they_are_meant) {
  const Hyperparameters saved = a_.hyper;
  for (const auto change :
       {+[](Hyperparameters& h) { h.lr *= 2; }, +[](Hyperparameters& h) { h.warmup += 1; },
        +[](Hyperparameters& h) { h.weight_decay = 0; },
        +[](Hyperparameters& h) { h.beta2 = 0.95; }, +[](Hyperparameters& h) { h.clip = 0; }}) {
    a_.hyper = saved;
    change(a_.hyper);
    a_.new_hyperparameters = false;
    EXPECT_EQ(resuming(), MILLPOND_E_MISMATCH);
    a_.new_hyperparameters = true;
    EXPECT_EQ(resuming(), MILLPOND_OK);
  }
}

TEST_F(Saved, more_steps_may_follow) {
  a_.steps = 14;
  EXPECT_EQ(run(a_).first_step, 5U);
}

TEST_F(Saved, unfinished_newer_save_is_passed_over) {
  // What a run leaves that is killed between sample.json and the optimizer's commit.
  const fs::path newer = a_.resume / "step_00000009";
  fs::create_directories(newer);
  fs::copy(a_.resume / "step_00000004" / "sample.json", newer);
  change_step(newer / "sample.json", "\"step\": 9");
  const RunResult result = run(a_);
  EXPECT_EQ(result.first_step, 5U);
}

TEST_F(Saved, lost_file_is_no_reason_to_go_on_from_an_older_save) {
  const fs::path older = a_.resume / "step_00000003", newer = a_.resume / "step_00000004";
  fs::copy(newer, older, fs::copy_options::recursive);
  const std::string described = change_step(older / "sample.json", "\"step\": 3");
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(newer)) {
    if (entry.path().extension() != ".bin") continue;
    fs::remove(entry.path());
    break;
  }
  const std::int32_t code = resuming();
  EXPECT_TRUE(code == MILLPOND_E_MISSING || code == MILLPOND_E_CORRUPT) << code;
  fs::remove_all(newer);
  EXPECT_EQ(run(a_).first_step, 4U) << described;
}

TEST_F(Saved, committed_save_without_its_description_is_refused) {
  fs::remove(a_.resume / "step_00000004" / "sample.json");
  EXPECT_EQ(resuming(), MILLPOND_E_MISSING);
}

TEST_F(Saved, damage_is_no_reason_to_go_on_from_an_older_save) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(a_.resume)) {
    if (entry.path().extension() != ".bin") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1000);
    file.put('x');
  }
  EXPECT_EQ(resuming(), MILLPOND_E_CORRUPT);
}

TEST_F(Saved, directory_without_a_save_is_refused) {
  const fs::path empty = directory_.path() / "empty";
  fs::create_directories(empty / "step_notes");
  a_.resume = empty;
  EXPECT_EQ(resuming(), MILLPOND_E_MISSING);
}

TEST_F(Saved, B34_learning_rate_of_the_resuming_run_counts) {
  const std::string same = run(a_).digest;
  a_.hyper.lr *= 0.5;
  a_.new_hyperparameters = true;
  EXPECT_NE(run(a_).digest, same);
}

}  // namespace
}  // namespace millpond::sample
