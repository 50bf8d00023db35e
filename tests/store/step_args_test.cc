// A step looks at all of its arguments before anything moves, and names what is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/store/training.h"

namespace millpond::tests {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class StepArguments : public ::testing::Test {
 protected:
  StepArguments()
      : job_(scratch_.path(), "\"tile_elements\": 4096"),
        training_(job_, "s",
                  {{"a", 5000, 0, 0},
                   {"b", 300, 2, 0, MILLPOND_DTYPE_BF16, MILLPOND_DTYPE_BF16},
                   {"e", 0, 2, 0}}) {
    Status status;
    EXPECT_EQ(training_.bind(&status), MILLPOND_OK) << status.text();
    training_.train(1, 2);
  }

  // `spoil` makes one thing wrong; the step is refused with that field and nothing has changed.
  void refused(const char* field, const std::function<void(Training::Step&)>& spoil) {
    SCOPED_TRACE(field);
    Training::Step step = training_.make_step(3);
    step.has_grad = {1, 1, 1};
    for (std::size_t i = 0; i < 2; ++i) step.pointers[i] = step.grads[i].data();
    spoil(step);
    Status status;
    EXPECT_EQ(training_.step(step, &status), MILLPOND_E_ARGUMENT) << status.text();
    EXPECT_STREQ(status.field, field) << status.text();
    EXPECT_EQ(status.flags, 0u);
    EXPECT_EQ(training_.models_differ(), "");
  }

  TemporaryDirectory scratch_;
  Job job_;
  Training training_;
};

TEST_F(StepArguments, hyperparameters_are_checked) {
  for (const double bad : {kNan, kInf, -kInf, -1e-9}) {
    refused("step_args.groups[1].lr", [&](auto& step) { step.groups[1].lr = bad; });
    refused("step_args.groups[0].eps", [&](auto& step) { step.groups[0].eps = bad; });
    refused("step_args.groups[1].weight_decay",
            [&](auto& step) { step.groups[1].weight_decay = bad; });
  }
  for (const double bad : {kNan, kInf, -0.1, 1.0, 1.5}) {
    refused("step_args.groups[0].beta1", [&](auto& step) { step.groups[0].beta1 = bad; });
    refused("step_args.groups[1].beta2", [&](auto& step) { step.groups[1].beta2 = bad; });
  }
  refused("step_args.groups[0].decoupled", [](auto& step) { step.groups[0].decoupled = 2; });
  refused("step_args.groups[1].maximize", [](auto& step) { step.groups[1].maximize = 7; });
  EXPECT_EQ(training_.state_differs(), "");
  training_.train(3, 6);
  EXPECT_EQ(training_.state_differs(), "");
}

TEST_F(StepArguments, settings_that_the_arithmetic_was_not_proven_for_change_nothing) {
  v1::HostProfile profile = training_.profile();
  profile.set_arithmetic("te_fused_adam/1");
  Status status;
  ASSERT_EQ(training_.bind(profile, &status), MILLPOND_OK) << status.text();
  refused("step_args.groups[1].maximize", [](auto& step) { step.groups[1].maximize = 1; });
  refused("step_args.groups[0].decoupled", [](auto& step) {
    step.groups[0].decoupled = 0;
    step.groups[0].weight_decay = 0.1;
  });
  EXPECT_EQ(training_.state_differs(), "");
}

TEST_F(StepArguments, groups_must_be_the_profiles) {
  refused("step_args.groups[1].id", [](auto& step) { step.groups[1].id = 9; });
  refused("step_args.groups[1].id", [](auto& step) { step.groups[1].id = step.groups[0].id; });
  refused("step_args.groups.count", [](auto& step) { step.groups.pop_back(); });
  refused("step_args.groups.count", [](auto& step) { step.groups.push_back(step.groups[0]); });
}

TEST_F(StepArguments, the_epoch_must_be_the_bound_one) {
  refused("step_args.config_epoch", [](auto& step) { step.epoch = 6; });
}

TEST_F(StepArguments, gradients_are_checked) {
  refused("step_args.grads[0]", [](auto& step) { step.pointers[0] = nullptr; });
  refused("step_args.grads[1]", [](auto& step) {
    step.pointers[1] = static_cast<const std::byte*>(step.pointers[1]) + 1;
  });
  refused("step_args.grads[0]", [](auto& step) {
    step.pointers[0] = static_cast<const std::byte*>(step.pointers[0]) + 2;
  });
  refused("step_args.has_grad[1]", [](auto& step) { step.has_grad[1] = 2; });
  refused("step_args.dtypes[0]", [](auto& step) { step.dtypes[0] = 17; });
  refused("step_args.shard_count", [](auto& step) { step.pointers.pop_back(); });
  refused("step_args.found_inf", [](auto& step) { step.found_inf = 2; });
  for (const float bad : {0.0f, -1.0f, NAN, INFINITY}) {
    refused("step_args.grad_scale", [&](auto& step) { step.grad_scale = bad; });
  }
}

TEST_F(StepArguments, streams_of_other_devices_are_refused) {
  const Training::Step step = training_.make_step(3);
  millpond_step_args args = step.args();
  Status status;
  args.stream.device_type = MILLPOND_DEVICE_CUDA;
  EXPECT_EQ(table().step(training_.store, &args, &status), MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status.field, "step_args.stream.device_type");
  args.stream = {MILLPOND_DEVICE_CPU, 0, 2};
  EXPECT_EQ(table().step(training_.store, &args, &status), MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status.field, "step_args.stream.handle");
}

TEST_F(StepArguments, an_overflow_is_looked_at_after_the_arguments) {
  refused("step_args.groups[0].lr", [](auto& step) {
    step.found_inf = 1;
    step.groups[0].lr = kNan;
  });
}

TEST_F(StepArguments, B21_overflow_moves_nothing_and_says_so) {
  Training::Step step = training_.make_step(3);
  step.found_inf = 1;
  put(step.grads.front(), MILLPOND_DTYPE_FP32, 4999, INFINITY);
  Status status;
  ASSERT_EQ(training_.step(step, &status), MILLPOND_OK) << status.text();
  EXPECT_EQ(status.flags, MILLPOND_STATUS_SKIPPED);
  EXPECT_EQ(training_.models_differ() + training_.state_differs(), "");
  millpond_step_figures figures{};
  figures.header = {sizeof(figures), MILLPOND_TYPE_STEP_FIGURES};
  ASSERT_EQ(reports().last_step(training_.store, &figures, &status), MILLPOND_OK);
  EXPECT_EQ(figures.outcome, MILLPOND_STEP_SKIPPED);
  EXPECT_EQ(figures.step, 2u);
  EXPECT_EQ(figures.bytes_read + figures.bytes_written, 0u);
}

TEST_F(StepArguments, B34_gradients_and_dtypes_default_to_the_last_ones) {
  Training::Step step = training_.make_step(4);
  step.has_grad = {1, 1, 1};
  for (std::size_t i = 0; i < 2; ++i) step.pointers[i] = step.grads[i].data();
  step.grad_scale = 1;
  Status status;
  ASSERT_EQ(training_.step(step, &status), MILLPOND_OK) << status.text();
  training_.resident_step(step);
  millpond_step_args args = step.args();
  args.grads = nullptr;
  args.dtypes = nullptr;
  args.has_grad = nullptr;
  args.shard_count = 0;
  ASSERT_EQ(table().step(training_.store, &args, &status), MILLPOND_OK) << status.text();
  step.has_grad[2] = 0;  // an empty shard without a pointer has no gradient
  training_.resident_step(step);
  EXPECT_EQ(training_.models_differ() + training_.state_differs(), "");
}

}  // namespace
}  // namespace millpond::tests
