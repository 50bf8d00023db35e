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

class ClaimedWorld {
 public:
  // By rank: parameters of its store of the first kind and of the second; none: no such store.
  // `axes`: whether the host says which rank it is of how many.
  ClaimedWorld(const std::string& scratch, const std::vector<Keys>& ranks, bool axes = true,
               const std::vector<Keys>& seconds = {})
      : meeting_(static_cast<std::uint32_t>(ranks.size())), stores_(ranks.size()) {
    const auto size = static_cast<std::uint32_t>(ranks.size());
    for (std::uint32_t r = 0; r < size; ++r) {
      jobs_.push_back(std::make_unique<Job>(
          scratch, std::string(kSmallTiles) + ", \"local_size\": " + std::to_string(size),
          offer_allgather));
      add_store(r, "opt0_0", ranks[r], axes);
      if (!seconds.empty()) add_store(r, "opt0_1", seconds[r], axes);
    }
  }
  Training& store(std::uint32_t rank, std::size_t kind = 0) { return *stores_[rank][kind]; }
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
  // `paths`: one for all, or one a rank.
  void save_all(const std::vector<std::string>& paths) {
    together([&](std::uint32_t r, millpond_group group) {
      Status status;
      millpond_save_id id{};
      const std::string& path = paths[r % paths.size()];
      EXPECT_EQ(checkpoints().save_begin(jobs_[r]->runtime, group, str(path), &id, &status),
                MILLPOND_OK)
          << status.text();
      for (const auto& store : stores_[r]) {
        store->train(1);
        EXPECT_EQ(save(*store, path, &status, 0, id.text), MILLPOND_OK) << status.text();
      }
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
      for (const auto& store : stores_[r]) {
        EXPECT_EQ(load(*store, path, &status, MILLPOND_IO_STAGE), MILLPOND_OK) << status.text();
      }
      checkpoints().load_commit(jobs_[r]->runtime, group, &answers[r]);
    });
    return answers;
  }
  std::vector<Everything> state() {
    std::vector<Everything> all;
    for (const auto& rank : stores_) {
      for (const auto& store : rank) all.push_back(everything(*store));
    }
    return all;
  }

 private:
  void add_store(std::uint32_t rank, const char* kind, const Keys& keys, bool axes) {
    if (keys.empty()) return;
    std::vector<Parameter> parameters;
    for (const std::string& key : keys) parameters.push_back({key, 3'000, 0, 0});
    stores_[rank].push_back(std::make_unique<Training>(
        *jobs_[rank], "rank0000" + std::to_string(rank) + "/" + kind, parameters, rank + 1));
    v1::HostProfile profile = stores_[rank].back()->profile();
    if (axes) {
      v1::Axis& axis = *profile.add_topology();
      axis.set_name("rank");
      axis.set_rank(rank);
      axis.set_size(static_cast<std::uint32_t>(stores_.size()));
    }
    Status status;
    EXPECT_EQ(stores_[rank].back()->bind(profile, &status), MILLPOND_OK) << status.text();
  }

  Meeting meeting_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<std::vector<std::unique_ptr<Training>>> stores_;  // by rank
};

class Unclaimed : public ::testing::Test {
 protected:
  void expect_all_load(ClaimedWorld& world) {
    for (const Status& answer : world.load_all(saved_.path())) {
      EXPECT_EQ(answer.code, MILLPOND_OK) << answer.text();
    }
  }
  // Every rank refuses, some with their own words, and none has changed.
  void expect_all_refuse(ClaimedWorld& world, const std::string& part) {
    const std::vector<Everything> before = world.state();
    for (const Status& answer : world.load_all(saved_.path())) {
      EXPECT_TRUE(answer.code == MILLPOND_E_MISMATCH || answer.code == MILLPOND_E_PEER)
          << answer.text();
      EXPECT_NE(answer.text().find(part), std::string::npos) << answer.text();
    }
    EXPECT_EQ(world.state(), before);
  }

  TemporaryDirectory scratch_, saved_;
};

TEST_F(Unclaimed, B33_a_parameter_that_no_rank_has_is_refused_on_all_of_them) {
  ClaimedWorld(scratch_.path(), {{"a", "b", "c"}}).save_all({saved_.path()});
  ClaimedWorld all(scratch_.path(), {{"a"}, {"c"}, {"b"}});
  expect_all_load(all);
  EXPECT_EQ(all.rounds(), 3U);
  ClaimedWorld none(scratch_.path(), {{"a"}, {"b"}, {"a"}});
  expect_all_refuse(none, "opt0_0: c");
  none.store(0).train(2);  // and goes on
}

TEST_F(Unclaimed, B33_what_a_rank_that_is_gone_had_is_refused_though_the_other_is_the_same) {
  ClaimedWorld(scratch_.path(), {{"a", "b"}, {"c"}}).save_all({saved_.path()});
  ClaimedWorld same(scratch_.path(), {{"a", "b"}, {"c"}});
  expect_all_load(same);
  EXPECT_EQ(same.rounds(), 1U);
  ClaimedWorld one(scratch_.path(), {{"a", "b"}});
  expect_all_refuse(one, "opt0_0: c");
  ClaimedWorld other(scratch_.path(), {{"a", "b", "c"}});
  expect_all_load(other);
}

TEST_F(Unclaimed, B33_also_where_the_host_names_no_axes) {
  ClaimedWorld(scratch_.path(), {{"a", "b"}, {"c"}}, false).save_all({saved_.path()});
  ClaimedWorld same(scratch_.path(), {{"a", "b"}, {"c"}}, false);
  expect_all_load(same);
  ClaimedWorld one(scratch_.path(), {{"a", "b"}}, false);
  expect_all_refuse(one, "opt0_0: c");
}

TEST_F(Unclaimed, B33_a_kind_of_store_that_is_gone_is_refused_also_by_the_same_ranks) {
  ClaimedWorld(scratch_.path(), {{"a"}, {"b"}}, true, {{"e"}, {"f"}}).save_all({saved_.path()});
  ClaimedWorld same(scratch_.path(), {{"a"}, {"b"}}, true, {{"e"}, {"f"}});
  expect_all_load(same);
  EXPECT_EQ(same.rounds(), 1U);
  ClaimedWorld dense(scratch_.path(), {{"a"}, {"b"}});
  expect_all_refuse(dense, "opt0_1: e");
  ClaimedWorld partly(scratch_.path(), {{"a"}, {"b"}}, true, {{"e"}, {}});
  expect_all_refuse(partly, "opt0_1: f");
  ClaimedWorld moved(scratch_.path(), {{"a"}, {"b"}}, true, {{}, {"f", "e"}});
  expect_all_load(moved);
}

TEST_F(Unclaimed, B33_what_a_rank_had_that_has_no_store_any_more_is_refused) {
  ClaimedWorld(scratch_.path(), {{"a"}, {}}, true, {{}, {"e"}}).save_all({saved_.path()});
  ClaimedWorld same(scratch_.path(), {{"a"}, {}}, true, {{}, {"e"}});
  expect_all_load(same);
  ClaimedWorld idle(scratch_.path(), {{"a"}, {}});
  expect_all_refuse(idle, "opt0_1: e");
  ClaimedWorld alone(scratch_.path(), {{"a"}});
  expect_all_refuse(alone, "opt0_1: e");
}

TEST_F(Unclaimed, B33_a_store_in_the_directory_of_another_node_is_refused_where_nobody_has_it) {
  TemporaryDirectory other_node;
  ClaimedWorld(scratch_.path(), {{"a"}, {"b"}}).save_all({saved_.path(), other_node.path()});
  ClaimedWorld one(scratch_.path(), {{"a"}});
  expect_all_refuse(one, "store rank00001/opt0_0");
}

TEST_F(Unclaimed, B33_a_store_that_loads_alone_says_what_it_leaves) {
  ClaimedWorld(scratch_.path(), {{"a", "b"}, {"c"}}).save_all({saved_.path()});
  ClaimedWorld one(scratch_.path(), {{"a", "b"}});
  Status status;
  ASSERT_EQ(load(one.store(0), saved_.path(), &status), MILLPOND_OK) << status.text();
  EXPECT_TRUE(one.job(0).log_has("does not have; they are lost unless another rank loads them"));
  EXPECT_TRUE(one.job(0).log_has("opt0_0: c"));
}

TEST_F(Unclaimed, B33_a_store_that_loads_alone_says_which_stores_of_its_rank_are_left) {
  ClaimedWorld(scratch_.path(), {{"a"}, {"b"}}, true, {{"e"}, {"f"}}).save_all({saved_.path()});
  ClaimedWorld dense(scratch_.path(), {{"a"}, {"b"}});
  Status status;
  ASSERT_EQ(load(dense.store(1), saved_.path(), &status), MILLPOND_OK) << status.text();
  EXPECT_TRUE(dense.job(1).log_has("the checkpoint has 1 parts")) << "those of rank 0 are no loss";
  EXPECT_TRUE(dense.job(1).log_has("opt0_1: f"));
  ClaimedWorld both(scratch_.path(), {{"a"}, {"b"}}, true, {{"e"}, {"f"}});
  ASSERT_EQ(load(both.store(1), saved_.path(), &status), MILLPOND_OK) << status.text();
  EXPECT_FALSE(both.job(1).log_has("are lost")) << "its other store is there to load it";
}

}  // namespace
}  // namespace millpond::tests
