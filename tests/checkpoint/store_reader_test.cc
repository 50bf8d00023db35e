// What the plugin saved, read by a program that knows nothing but FORMAT.md.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/checkpoint/python_reader.h"
#include "tests/checkpoint/saved_training.h"

namespace millpond::tests {
namespace {

using checkpoint::testing::PythonAnswer;
using checkpoint::testing::read_with_python;

TEST(OtherReader, mains_right_after_bind_are_the_bf16_parameters_widened) {
  TemporaryDirectory scratch, saved, models;
  Job job(scratch.path(), kSmallTiles);
  std::vector<Parameter> parameters = usual_parameters();
  parameters[5].model = MILLPOND_DTYPE_BF16;
  Training training(job, "rank00000/opt0_0", parameters);
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  ASSERT_EQ(save(training, saved.path(), &status), MILLPOND_OK) << status.text();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    write_file(models.path() + "/" + std::to_string(i) + ".bf16",
               std::string(training.models[i].begin(), training.models[i].end()));
  }
  PythonAnswer answer = read_with_python({"mains-are-bf16", saved.path(), models.path()});
  if (!answer.skip.empty()) GTEST_SKIP() << answer.skip;
  EXPECT_EQ(answer.code, 0) << answer.text;
  EXPECT_NE(answer.text.find("\"elements_compared\": 22104"), std::string::npos) << answer.text;

  // After a step they are not any more, and it says so.
  training.train(1);
  ASSERT_EQ(save(training, saved.path(), &status), MILLPOND_OK) << status.text();
  answer = read_with_python({"mains-are-bf16", saved.path(), models.path()});
  EXPECT_NE(answer.code, 0);
  EXPECT_NE(answer.text.find("differs"), std::string::npos) << answer.text;
}

class OtherReaderOf : public ::testing::TestWithParam<const char*> {};

TEST_P(OtherReaderOf, every_format_has_the_values_that_the_plugin_says) {
  TemporaryDirectory scratch, saved, values;
  Job job(scratch.path(), std::string(kSmallTiles) + ", \"moments\": \"" + GetParam() + "\"");
  Training training(job, "rank00000/opt0_0", usual_parameters());
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  for (std::uint64_t number = 1; number <= 3; ++number) {
    ASSERT_EQ(training.step(training.make_step(number), &status), MILLPOND_OK) << status.text();
  }
  ASSERT_EQ(save(training, saved.path(), &status), MILLPOND_OK) << status.text();
  const PythonAnswer answer = read_with_python({"segments", saved.path(), values.path()});
  if (!answer.skip.empty()) GTEST_SKIP() << answer.skip;
  ASSERT_EQ(answer.code, 0) << answer.text;
  const char* names[] = {"main", "exp_avg", "exp_avg_sq"};
  for (std::size_t i = 0; i < training.parameters.size(); ++i) {
    const std::string own = values.path() + "/" + std::to_string(i) + ".";
    EXPECT_EQ(std::filesystem::exists(own + "main.f32"),
              training.parameters[i].model != MILLPOND_DTYPE_FP32);
    for (std::uint32_t s = training.parameters[i].model == MILLPOND_DTYPE_FP32 ? 1 : 0; s < 3;
         ++s) {
      const std::vector<float> ours = training.read(i, s);
      const std::string theirs = file_bytes(own + names[s] + ".f32");
      ASSERT_EQ(theirs.size(), ours.size() * sizeof(float));
      EXPECT_TRUE(ours.empty() || std::memcmp(theirs.data(), ours.data(), theirs.size()) == 0)
          << training.parameters[i].key << " " << names[s];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Moments, OtherReaderOf,
                         ::testing::Values("fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace millpond::tests
