// Saves of several ranks, as threads: in one directory, and in node-local ones (two directories
// stand for two nodes). The commit counts on all of them or on none.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "tests/checkpoint/meeting.h"
#include "tests/checkpoint/saved_training.h"

namespace millpond::tests {
namespace {

constexpr std::uint32_t kRanks = 4;

class Ranks : public ::testing::Test {
 protected:
  struct Rank {
    Rank(const std::string& scratch, std::uint32_t number, Meeting& meeting)
        : job(scratch, std::string(kSmallTiles) + ", \"local_size\": 4", offer_allgather),
          group{reinterpret_cast<std::uint64_t>(&meeting), number, kRanks} {}
    Job job;
    millpond_group group;
    std::unique_ptr<Training> training;  // rank 2 has no store
    std::string path;
    std::vector<PlainParameter> saved;
  };

  Ranks() {
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      ranks_.push_back(std::make_unique<Rank>(scratch_.path(), r, meeting_));
      Rank& rank = *ranks_.back();
      rank.path = nodes_.path() + "/shared";
      if (r == 2) continue;
      rank.training = std::make_unique<Training>(
          rank.job, "rank0000" + std::to_string(r) + "/opt0_0",
          std::vector<Parameter>{{"w" + std::to_string(r), 9'000, 0, 0}}, r + 1);
      Status status;
      EXPECT_EQ(rank.training->bind(&status), MILLPOND_OK) << status.text();
    }
  }
  void node_local() {
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      ranks_[r]->path = nodes_.path() + "/node" + std::to_string(r / 2);
    }
  }
  void together(const std::function<void(Rank&, std::uint32_t)>& body) {
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] { body(*ranks_[r], r); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  static void train(Rank& rank, std::uint64_t number) {
    if (rank.training) rank.training->train(number);
  }
  // The answer of save_commit; `write` says whether this rank's store is saved.
  static std::int32_t save_all(Rank& rank, Status* status, bool write = true) {
    millpond_save_id id{};
    EXPECT_EQ(checkpoints().save_begin(rank.job.runtime, rank.group, str(rank.path), &id, status),
              MILLPOND_OK)
        << status->text();
    if (rank.training && write) {
      EXPECT_EQ(save(*rank.training, rank.path, status, 0, id.text), MILLPOND_OK) << status->text();
    }
    return checkpoints().save_commit(rank.job.runtime, rank.group, {id.text, std::strlen(id.text)},
                                     status);
  }
  static std::int32_t load_all(Rank& rank, Status* status, const std::string& id = "") {
    if (rank.training) {
      EXPECT_EQ(load(*rank.training, rank.path, status, MILLPOND_IO_STAGE, id), MILLPOND_OK)
          << status->text();
    }
    return checkpoints().load_commit(rank.job.runtime, rank.group, status);
  }
  static void remember(Rank& rank) {
    if (rank.training) rank.saved = rank.training->plain;
  }
  static void expect_remembered(Rank& rank) {
    if (!rank.training) return;
    rank.training->plain = rank.saved;
    EXPECT_EQ(rank.training->models_differ() + rank.training->state_differs(), "");
  }

  TemporaryDirectory scratch_, nodes_;
  Meeting meeting_{kRanks};
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(Ranks, save_and_load_together_one_of_them_without_a_store) {
  together([](Rank& rank, std::uint32_t) {
    Status status;
    for (std::uint64_t number = 1; number <= 3; ++number) {
      train(rank, number);
      ASSERT_EQ(save_all(rank, &status), MILLPOND_OK) << status.text();
      remember(rank);
    }
    train(rank, 4);
    ASSERT_EQ(load_all(rank, &status), MILLPOND_OK) << status.text();
    expect_remembered(rank);
  });
  const std::filesystem::path save = only_save(ranks_[0]->path);
  ASSERT_FALSE(save.empty());
  const std::string commit = file_bytes(save / "COMMIT.json");
  EXPECT_NE(commit.find("\"world_size\": 4"), std::string::npos) << commit;
  EXPECT_NE(commit.find("\"sequence\": 3"), std::string::npos) << commit;
  EXPECT_NE(commit.find("rank00003/opt0_0"), std::string::npos) << commit;
  // The host names no axes: whether the ranks are the same is asked for in two more.
  EXPECT_EQ(meeting_.rounds(), 3 * 3 + 3U);
}

TEST_F(Ranks, node_local_directories_each_get_the_same_commit) {
  node_local();
  together([](Rank& rank, std::uint32_t) {
    Status status;
    train(rank, 1);
    ASSERT_EQ(save_all(rank, &status), MILLPOND_OK) << status.text();
    train(rank, 2);
    ASSERT_EQ(save_all(rank, &status), MILLPOND_OK) << status.text();
    remember(rank);
    train(rank, 3);
    ASSERT_EQ(load_all(rank, &status), MILLPOND_OK) << status.text();
    expect_remembered(rank);
  });
  const std::filesystem::path a = only_save(nodes_.path() + "/node0");
  const std::filesystem::path b = only_save(nodes_.path() + "/node1");
  ASSERT_FALSE(a.empty());
  EXPECT_EQ(a.filename(), b.filename());
  EXPECT_EQ(file_bytes(a / "COMMIT.json"), file_bytes(b / "COMMIT.json"));
  EXPECT_FALSE(std::filesystem::exists(b / "rank00000"));
  EXPECT_TRUE(std::filesystem::exists(b / "rank00003"));
}

TEST_F(Ranks, what_one_rank_did_not_write_counts_nowhere_and_the_older_save_stays) {
  for (const bool local : {false, true}) {
    if (local) node_local();
    together([](Rank& rank, std::uint32_t number) {
      Status status;
      train(rank, 1);
      ASSERT_EQ(save_all(rank, &status), MILLPOND_OK) << status.text();
      remember(rank);
      train(rank, 2);
      EXPECT_EQ(save_all(rank, &status, number != 3),
                number == 3 ? MILLPOND_E_STATE : MILLPOND_E_PEER)
          << status.text();
      EXPECT_NE(std::string(status.message).find(number == 3 ? "rank00003" : "rank 3"),
                std::string::npos)
          << status.message;
      ASSERT_EQ(load_all(rank, &status), MILLPOND_OK) << status.text();
      expect_remembered(rank);
    });
    EXPECT_FALSE(only_save(ranks_[0]->path).empty());
    EXPECT_FALSE(only_save(ranks_[3]->path).empty());
  }
}

// The second node could not write its commit: the first one's is taken back.
TEST_F(Ranks, a_commit_that_one_node_could_not_write_is_taken_back_everywhere) {
  node_local();
  together([&](Rank& rank, std::uint32_t number) {
    Status status;
    train(rank, 1);
    ASSERT_EQ(save_all(rank, &status), MILLPOND_OK) << status.text();
    remember(rank);
    train(rank, 2);
    millpond_save_id id{};
    ASSERT_EQ(checkpoints().save_begin(rank.job.runtime, rank.group, str(rank.path), &id, &status),
              MILLPOND_OK);
    if (rank.training) {
      ASSERT_EQ(save(*rank.training, rank.path, &status, 0, id.text), MILLPOND_OK);
    }
    if (number == 3) {
      // A directory where the commit would be renamed to.
      std::filesystem::create_directory(rank.path + "/" + id.text + "/COMMIT.json");
    }
    EXPECT_NE(checkpoints().save_commit(rank.job.runtime, rank.group, {id.text, 32}, &status),
              MILLPOND_OK);
    EXPECT_NE(std::string(status.message).find("COMMIT.json"), std::string::npos) << status.message;
    ASSERT_EQ(load_all(rank, &status), MILLPOND_OK) << status.text();
    expect_remembered(rank);
  });
  EXPECT_FALSE(only_save(nodes_.path() + "/node0").empty());
  EXPECT_FALSE(only_save(nodes_.path() + "/node1").empty());
}

// As after a kill between the renames of two nodes: one has the new commit, the other has not.
TEST_F(Ranks, B35_of_saves_that_differ_between_nodes_the_newest_that_all_have_loads) {
  node_local();
  std::string first;
  together([&](Rank& rank, std::uint32_t number) {
    Status status;
    train(rank, 1);
    ASSERT_EQ(save_all(rank, &status), MILLPOND_OK) << status.text();
    remember(rank);
    if (number == 0) {
      first = only_save(rank.path).filename().string();
      std::filesystem::copy(rank.path + "/" + first, nodes_.path() + "/kept",
                            std::filesystem::copy_options::recursive);
    }
    if (number == 3) {
      std::filesystem::copy(only_save(rank.path), nodes_.path() + "/kept3",
                            std::filesystem::copy_options::recursive);
    }
    train(rank, 2);
    ASSERT_EQ(save_all(rank, &status), MILLPOND_OK) << status.text();
  });
  const auto everywhere = std::filesystem::copy_options::recursive;
  std::filesystem::copy(nodes_.path() + "/kept", ranks_[0]->path + "/" + first, everywhere);
  std::filesystem::remove_all(only_save(ranks_[3]->path));
  std::filesystem::copy(nodes_.path() + "/kept3", ranks_[3]->path + "/" + first, everywhere);
  together([&](Rank& rank, std::uint32_t) {
    Status status;
    ASSERT_EQ(load_all(rank, &status), MILLPOND_OK) << status.text();
    expect_remembered(rank);
    EXPECT_TRUE(rank.job.log_has("loading " + first));
    train(rank, 3);
    ASSERT_EQ(load_all(rank, &status, first), MILLPOND_OK) << status.text();
    expect_remembered(rank);
  });
  // Nothing in common: no rank loads anything.
  std::filesystem::remove_all(ranks_[0]->path + "/" + first);
  together([&](Rank& rank, std::uint32_t) {
    Status status;
    train(rank, 4);
    remember(rank);
    EXPECT_EQ(load_all(rank, &status), MILLPOND_E_MISMATCH) << status.text();
    EXPECT_NE(std::string(status.message).find(first), std::string::npos) << status.message;
    expect_remembered(rank);
  });
}

TEST_F(Ranks, a_rank_whose_allgather_failed_removes_nothing_that_may_count) {
  // The second round of the second commit fails on rank 1 alone: for the others the save counts.
  meeting_.fail_round = 5;
  meeting_.fail_rank = 1;
  together([](Rank& rank, std::uint32_t number) {
    Status status;
    train(rank, 1);
    ASSERT_EQ(save_all(rank, &status), MILLPOND_OK) << status.text();
    train(rank, 2);
    EXPECT_EQ(save_all(rank, &status) == MILLPOND_OK, number != 1) << status.text();
    remember(rank);
    train(rank, 3);
    ASSERT_EQ(load_all(rank, &status), MILLPOND_OK) << status.text();
    expect_remembered(rank);
  });
}

TEST_F(Ranks, two_ranks_with_one_name_are_refused) {
  together([](Rank& rank, std::uint32_t number) {
    Status status;
    if (number == 2) {
      rank.training = std::make_unique<Training>(rank.job, "rank00000/opt0_0",
                                                 std::vector<Parameter>{{"w", 300, 0, 0}});
      ASSERT_EQ(rank.training->bind(&status), MILLPOND_OK) << status.text();
    }
    millpond_save_id id{};
    ASSERT_EQ(checkpoints().save_begin(rank.job.runtime, rank.group, str(rank.path), &id, &status),
              MILLPOND_OK);
    // Both write the same files; whatever became of them, nothing counts.
    if (rank.training) save(*rank.training, rank.path, &status, 0, id.text);
    EXPECT_NE(checkpoints().save_commit(rank.job.runtime, rank.group, {id.text, 32}, &status),
              MILLPOND_OK);
    if (rank.training) {
      EXPECT_NE(load(*rank.training, rank.path, &status), MILLPOND_OK);
    }
  });
}

}  // namespace
}  // namespace millpond::tests
