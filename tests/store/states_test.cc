// What may be called when, and what a store is afterwards.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/store/training.h"

namespace millpond::tests {
namespace {

std::vector<Parameter> four_parameters() {
  return {{"a", 5000, 0, 0},
          {"b", 9000, 2, 0},
          {"n", 700, 0, 0, MILLPOND_DTYPE_FP32},
          {"c", 3000, 2, 1, MILLPOND_DTYPE_FP16, MILLPOND_DTYPE_BF16}};
}

constexpr char kFourInLittle[] = "\"tile_elements\": 4096, \"host_memory_bytes\": 200000";

v1::HostProfile refused(v1::HostProfile profile) {
  for (v1::Feature& feature : *profile.mutable_features()) {
    if (feature.name() == "param.fp8") feature.set_state(v1::STATE_ACTIVE);
  }
  return profile;
}

TEST(Store, unbound_refuses_what_needs_a_bind) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kFourInLittle);
  Training training(job, "s", four_parameters());
  Status status;
  EXPECT_EQ(training.step(training.make_step(1), &status), MILLPOND_E_STATE) << status.text();
  EXPECT_EQ(table().unbind(training.store, &status), MILLPOND_E_STATE) << status.text();
  millpond_refresh_args refresh{};
  refresh.header = {sizeof(refresh), MILLPOND_TYPE_REFRESH_ARGS};
  EXPECT_EQ(table().refresh_main(training.store, &refresh, &status), MILLPOND_E_STATE);
  std::uint64_t step = 0;
  EXPECT_EQ(states().get_step(training.store, 1000, &step, &status), MILLPOND_E_STATE);
  millpond_plan_figures plan{};
  plan.header = {sizeof(plan), MILLPOND_TYPE_PLAN_FIGURES};
  EXPECT_EQ(reports().plan(training.store, &plan, &status), MILLPOND_OK) << status.text();
  EXPECT_EQ(plan.tiles, 0u);
  EXPECT_EQ(table().destroy(training.store, &status), MILLPOND_OK);
  training.store = nullptr;
}

TEST(Store, runtime_creates_no_files_before_the_first_bind) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kFourInLittle);
  Training training(job, "s", four_parameters());
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_FALSE(std::filesystem::is_empty(scratch.path()));
  ASSERT_EQ(job.destroy(&status), MILLPOND_OK) << status.text();
  training.store = nullptr;
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(Store, names_are_checked_and_unique) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kFourInLittle);
  Status status;
  millpond_store* store = nullptr;
  for (const char* name : {"", "/", "a//b", "..", "a/..", ".", "a b", "\xc3\xa4", "a/"}) {
    EXPECT_EQ(table().create(job.runtime, str(name), &store, &status), MILLPOND_E_ARGUMENT) << name;
    EXPECT_STREQ(status.field, "uid") << name;
    EXPECT_EQ(store, nullptr);
  }
  EXPECT_EQ(table().create(job.runtime, str(std::string(129, 'x')), &store, &status),
            MILLPOND_E_ARGUMENT);
  EXPECT_EQ(table().create(job.runtime, str(std::string(128, 'x')), &store, &status), MILLPOND_OK);
  EXPECT_EQ(table().create(job.runtime, str(std::string(128, 'x')), &store, &status),
            MILLPOND_E_ARGUMENT);
}

TEST(Store, B42_refused_bind_parks_the_state_and_a_later_one_finds_it) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kFourInLittle);
  Training training(job, "s", four_parameters());
  Status status;
  ASSERT_EQ(training.bind(refused(training.profile()), &status), MILLPOND_E_REFUSED);
  EXPECT_FALSE(training.report.accepted());
  EXPECT_EQ(training.step(training.make_step(1), &status), MILLPOND_E_STATE);
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(1, 12);
  ASSERT_EQ(training.bind(refused(training.profile()), &status), MILLPOND_E_REFUSED);
  ASSERT_EQ(training.report.refusals_size(), 1);
  EXPECT_EQ(training.report.refusals(0).subject(), "param.fp8");
  EXPECT_NE(std::string(status.message).find("param.fp8"), std::string::npos) << status.message;
  EXPECT_EQ(training.step(training.make_step(13), &status), MILLPOND_E_STATE);
  EXPECT_NE(std::string(status.message).find("parked"), std::string::npos) << status.message;
  EXPECT_EQ(training.state_differs(), "") << "parked";
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_EQ(training.report.plan().shards_kept(), 4u);
  training.train(13, 30);
  EXPECT_EQ(training.models_differ(), "");
  EXPECT_EQ(training.state_differs(), "");
}

TEST(Store, bind_with_unreadable_arguments_unbinds_too) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kFourInLittle);
  Training training(job, "s", four_parameters());
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(1, 2);
  millpond_bind_args args{};
  EXPECT_EQ(table().bind(training.store, &args, nullptr, &status), MILLPOND_E_ARGUMENT);
  EXPECT_EQ(training.step(training.make_step(3), &status), MILLPOND_E_STATE);
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(3, 5);
  EXPECT_EQ(training.state_differs(), "");
}

TEST(Store, unbind_parks_and_forgets_the_hosts_pointers) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kFourInLittle);
  Training training(job, "s", four_parameters());
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(1, 4);
  ASSERT_EQ(table().unbind(training.store, &status), MILLPOND_OK) << status.text();
  EXPECT_EQ(training.step(training.make_step(5), &status), MILLPOND_E_STATE);
  for (auto& model : training.models) {
    std::vector<std::uint8_t> moved(model);
    std::memset(model.data(), 0xFF, model.size());
    model.swap(moved);
  }
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(5, 20);
  EXPECT_EQ(training.models_differ(), "");
  EXPECT_EQ(training.state_differs(), "");
}

TEST(Store, destroy_is_legal_in_every_state) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kFourInLittle);
  Status status;
  for (int kind = 0; kind < 6; ++kind) {
    SCOPED_TRACE(kind);
    std::vector<Parameter> parameters = four_parameters();
    if (kind == 5) parameters[0].no_model = parameters[0].given_main = true;
    Training training(job, "s", parameters);
    if (kind >= 1) {
      ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
    }
    if (kind == 2) training.train(1, 3);
    if (kind == 3) {
      EXPECT_EQ(table().unbind(training.store, &status), MILLPOND_OK);
    }
    if (kind == 4) {
      EXPECT_EQ(phases().suspend(job.runtime, 1, &status), MILLPOND_OK);
    }
    if (kind == 5) {
      job.copy_answer = MILLPOND_E_CALLBACK;
      EXPECT_EQ(training.step(training.make_step(1), &status), MILLPOND_E_CALLBACK);
      EXPECT_TRUE((status.flags & MILLPOND_STATUS_POISONED) != 0);
    }
    EXPECT_EQ(table().destroy(training.store, &status), MILLPOND_OK) << status.text();
    training.store = nullptr;
    if (kind == 4) {
      EXPECT_EQ(phases().resume(job.runtime, &status), MILLPOND_OK) << status.text();
    }
  }
  EXPECT_EQ(table().destroy(nullptr, &status), MILLPOND_OK);
  EXPECT_EQ(table().runtime_destroy(nullptr, &status), MILLPOND_OK);
}

TEST(Store, runtime_destroy_takes_its_stores_along) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kFourInLittle);
  Training one(job, "one", four_parameters()), two(job, "two", four_parameters());
  Status status;
  ASSERT_EQ(one.bind(&status), MILLPOND_OK) << status.text();
  ASSERT_EQ(two.bind(&status), MILLPOND_OK) << status.text();
  one.train(1, 2);
  EXPECT_EQ(job.destroy(&status), MILLPOND_OK) << status.text();
}

TEST(Store, poisoned_after_a_failure_that_may_have_written) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kFourInLittle);
  std::vector<Parameter> parameters = four_parameters();
  parameters[1].no_model = parameters[1].given_main = true;
  Training training(job, "s", parameters);
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(1, 3);
  job.copy_answer = MILLPOND_E_MEMORY;
  ASSERT_EQ(training.step(training.make_step(4), &status), MILLPOND_E_CALLBACK) << status.text();
  EXPECT_TRUE((status.flags & MILLPOND_STATUS_POISONED) != 0);
  EXPECT_STREQ(status.field, "host_api.copy_main_to_model");
  job.copy_answer = MILLPOND_OK;
  EXPECT_EQ(training.step(training.make_step(4), &status), MILLPOND_E_POISONED) << status.text();
  millpond_refresh_args refresh{};
  refresh.header = {sizeof(refresh), MILLPOND_TYPE_REFRESH_ARGS};
  EXPECT_EQ(table().refresh_main(training.store, &refresh, &status), MILLPOND_E_POISONED);
  const std::string path = scratch.path() + "/saved";
  millpond_io_args io = io_args(path);
  EXPECT_EQ(table().save_to(training.store, &io, &status), MILLPOND_E_POISONED) << status.text();
  // A bind does not make it well either.
  EXPECT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_TRUE((status.flags & MILLPOND_STATUS_POISONED) != 0);
  EXPECT_EQ(training.step(training.make_step(4), &status), MILLPOND_E_POISONED) << status.text();
  millpond_step_figures figures{};
  figures.header = {sizeof(figures), MILLPOND_TYPE_STEP_FIGURES};
  EXPECT_EQ(reports().last_step(training.store, &figures, &status), MILLPOND_OK);
  EXPECT_EQ(figures.outcome, MILLPOND_STEP_FAILED);
}

TEST(Store, poison_goes_with_a_load) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kFourInLittle);
  std::vector<Parameter> parameters = four_parameters();
  parameters[1].no_model = parameters[1].given_main = true;
  Training training(job, "s", parameters);
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(1, 3);
  const std::string path = scratch.path() + "/saved";
  millpond_io_args io = io_args(path);
  ASSERT_EQ(table().save_to(training.store, &io, &status), MILLPOND_OK) << status.text();
  job.copy_answer = MILLPOND_E_MEMORY;
  ASSERT_EQ(training.step(training.make_step(4), &status), MILLPOND_E_CALLBACK);
  job.copy_answer = MILLPOND_OK;
  io.flags = 0;
  ASSERT_EQ(table().load_from(training.store, &io, &status), MILLPOND_OK) << status.text();
  EXPECT_EQ(status.flags & MILLPOND_STATUS_POISONED, 0u);
  EXPECT_EQ(training.models_differ(), "");
  EXPECT_EQ(training.state_differs(), "");
  training.train(4, 12);
  EXPECT_EQ(training.models_differ(), "");
  EXPECT_EQ(training.state_differs(), "");
}

TEST(Store, two_stores_of_a_runtime_step_in_turn) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 4096, \"host_memory_bytes\": 400000");
  Training dense(job, "rank00000/opt0_0", four_parameters(), 3),
      expert(job, "rank00000/opt0_1", four_parameters(), 4);
  Status status;
  ASSERT_EQ(dense.bind(&status), MILLPOND_OK) << status.text();
  dense.train(1, 2);
  ASSERT_EQ(expert.bind(&status), MILLPOND_OK) << status.text();
  for (std::uint64_t number = 3; number < 24; ++number) {
    dense.train(number);
    expert.train(number);
    if (number == 12) {
      ASSERT_EQ(table().unbind(expert.store, &status), MILLPOND_OK);
    }
    if (number == 12) {
      ASSERT_EQ(expert.bind(&status), MILLPOND_OK) << status.text();
    }
  }
  EXPECT_EQ(dense.models_differ() + expert.models_differ(), "");
  EXPECT_EQ(dense.state_differs() + expert.state_differs(), "");
  ASSERT_EQ(table().destroy(dense.store, &status), MILLPOND_OK);
  dense.store = nullptr;
  expert.train(24, 30);
  EXPECT_EQ(expert.models_differ() + expert.state_differs(), "");
}

}  // namespace
}  // namespace millpond::tests
