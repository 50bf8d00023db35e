// Parameters of a checkpoint that no rank of the new world asks for are never dropped without a
// word: load_commit refuses on every rank, and a load by a store alone says so in the log.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "tests/checkpoint/meeting.h"
#include "tests/checkpoint/saved_training.h"

namespace millpond::tests {
namespace {

using Keys = std::vector<std::string>;  // of one rank

class World {
 public:
  // `axes`: whether the host says which rank it is of how many.
  World(const std::string& scratch, const std::vector<Keys>& ranks, bool axes = true)
      : meeting_(static_cast<std::uint32_t>(ranks.size())) {
    const auto size = static_cast<std::uint32_t>(ranks.size());
    for (std::uint32_t r = 0; r < size; ++r) {
      jobs_.push_back(std::make_unique<Job>(
          scratch, std::string(kSmallTiles) + ", \"local_size\": " + std::to_string(size),
          offer_allgather));
      std::vector<Parameter> parameters;
      for (const std::string& key : ranks[r]) parameters.push_back({key, 3'000, 0, 0});
      stores_.push_back(std::make_unique<Training>(
          *jobs_[r], "rank0000" + std::to_string(r) + "/opt0_0", parameters, r + 1));
      v1::HostProfile profile = stores_[r]->profile();
      if (axes) {
        v1::Axis& axis = *profile.add_topology();
        axis.set_name("rank");
        axis.set_rank(r);
        axis.set_size(size);
      }
      Status status;
      EXPECT_EQ(stores_[r]->bind(profile, &status), MILLPOND_OK) << status.text();
    }
  }
  Training& store(std::uint32_t rank) { return *stores_[rank]; }
  Job& job(std::uint32_t rank) { return *jobs_[rank]; }
  std::uint64_t rounds() const { return meeting_.rounds(); }

  void together(const std::function<void(std::uint32_t, millpond_group)>& body) {
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < stores_.size(); ++r) {
      const millpond_group group{reinterpret_cast<std::uint64_t>(&meeting_), r,
                                 static_cast<std::uint32_t>(stores_.size())};
      threads.emplace_back([&body, r, group] { body(r, group); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void save_all(const std::string& path) {
    together([&](std::uint32_t r, millpond_group group) {
      Status status;
      millpond_save_id id{};
      stores_[r]->train(1);
      EXPECT_EQ(checkpoints().save_begin(jobs_[r]->runtime, group, str(path), &id, &status),
                MILLPOND_OK)
          << status.text();
      EXPECT_EQ(save(*stores_[r], path, &status, 0, id.text), MILLPOND_OK) << status.text();
      EXPECT_EQ(checkpoints().save_commit(jobs_[r]->runtime, group, {id.text, std::strlen(id.text)},
                                          &status),
                MILLPOND_OK)
          << status.text();
    });
  }
  // What load_commit says on each rank.
  std::vector<Status> load_all(const std::string& path) {
    std::vector<Status> answers(stores_.size());
    together([&](std::uint32_t r, millpond_group group) {
      Status status;
      EXPECT_EQ(load(*stores_[r], path, &status, MILLPOND_IO_STAGE), MILLPOND_OK) << status.text();
      checkpoints().load_commit(jobs_[r]->runtime, group, &answers[r]);
    });
    return answers;
  }

 private:
  Meeting meeting_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<std::unique_ptr<Training>> stores_;
};

class Unclaimed : public ::testing::Test {
 protected:
  void expect_all_load(World& world) {
    for (const Status& answer : world.load_all(saved_.path())) {
      EXPECT_EQ(answer.code, MILLPOND_OK) << answer.text();
    }
  }
  // Every rank refuses, some with their own words, and none has changed.
  void expect_all_refuse(World& world, std::uint32_t ranks, const std::string& part) {
    std::vector<Everything> before;
    for (std::uint32_t r = 0; r < ranks; ++r) before.push_back(everything(world.store(r)));
    for (const Status& answer : world.load_all(saved_.path())) {
      EXPECT_TRUE(answer.code == MILLPOND_E_MISMATCH || answer.code == MILLPOND_E_PEER)
          << answer.text();
      EXPECT_NE(answer.text().find(part), std::string::npos) << answer.text();
    }
    for (std::uint32_t r = 0; r < ranks; ++r) EXPECT_EQ(everything(world.store(r)), before[r]);
  }

  TemporaryDirectory scratch_, saved_;
};

TEST_F(Unclaimed, B33_a_parameter_that_no_rank_has_is_refused_on_all_of_them) {
  World(scratch_.path(), {{"a", "b", "c"}}).save_all(saved_.path());
  World all(scratch_.path(), {{"a"}, {"c"}, {"b"}});
  expect_all_load(all);
  EXPECT_EQ(all.rounds(), 3U);
  World none(scratch_.path(), {{"a"}, {"b"}, {"a"}});
  expect_all_refuse(none, 3, "opt0_0: c");
  none.store(0).train(2);  // and goes on
}

TEST_F(Unclaimed, B33_what_a_rank_that_is_gone_had_is_refused_though_the_other_is_the_same) {
  World(scratch_.path(), {{"a", "b"}, {"c"}}).save_all(saved_.path());
  World same(scratch_.path(), {{"a", "b"}, {"c"}});
  expect_all_load(same);
  EXPECT_EQ(same.rounds(), 1U);
  World one(scratch_.path(), {{"a", "b"}});
  expect_all_refuse(one, 1, "opt0_0: c");
  World other(scratch_.path(), {{"a", "b", "c"}});
  expect_all_load(other);
}

TEST_F(Unclaimed, B33_also_where_the_host_names_no_axes) {
  World(scratch_.path(), {{"a", "b"}, {"c"}}, false).save_all(saved_.path());
  World same(scratch_.path(), {{"a", "b"}, {"c"}}, false);
  expect_all_load(same);
  World one(scratch_.path(), {{"a", "b"}}, false);
  expect_all_refuse(one, 1, "opt0_0: c");
}

TEST_F(Unclaimed, B33_a_store_that_loads_alone_says_what_it_leaves) {
  World(scratch_.path(), {{"a", "b"}, {"c"}}).save_all(saved_.path());
  World one(scratch_.path(), {{"a", "b"}});
  Status status;
  ASSERT_EQ(load(one.store(0), saved_.path(), &status), MILLPOND_OK) << status.text();
  EXPECT_TRUE(one.job(0).log_has("does not have; they are lost unless another rank loads them"));
  EXPECT_TRUE(one.job(0).log_has("opt0_0: c"));
}

}  // namespace
}  // namespace millpond::tests
