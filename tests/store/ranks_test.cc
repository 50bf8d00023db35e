// Calls with a group: ranks are threads of this process, each with a runtime of its own.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "tests/store/training.h"

namespace millpond::tests {
namespace {

constexpr std::uint32_t kRanks = 3;

// An allgather among threads that counts its rounds.
class Meeting {
 public:
  void gather(std::uint32_t rank, const void* send, void* receive, std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    const std::uint64_t round = round_;
    if (board_.size() != kRanks * bytes) board_.resize(kRanks * bytes);
    std::memcpy(board_.data() + rank * bytes, send, bytes);
    if (++arrived_ == kRanks) {
      last_ = board_;
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round; });
    }
    std::memcpy(receive, last_.data(), kRanks * bytes);
  }
  std::uint64_t rounds() const { return round_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint8_t> board_, last_;
  std::uint32_t arrived_ = 0;
  std::uint64_t round_ = 0;
};

Meeting& meeting_of(std::uint64_t token) { return *reinterpret_cast<Meeting*>(token); }

void offer_allgather(millpond_host_api& api) {
  api.allgather = [](void*, millpond_group group, const void* send, void* receive,
                     std::uint64_t bytes, std::int32_t* answer) {
    meeting_of(group.token).gather(group.rank, send, receive, bytes);
    *answer = MILLPOND_OK;
  };
}

struct Rank {
  Rank(const std::string& scratch, std::uint32_t number, Meeting& meeting)
      : job(scratch,
            "\"tile_elements\": 4096, \"local_rank\": " + std::to_string(number) +
                ", \"local_size\": " + std::to_string(kRanks),
            offer_allgather),
        group{reinterpret_cast<std::uint64_t>(&meeting), number, kRanks},
        training(job, "rank0000" + std::to_string(number) + "/opt0_0",
                 {{"a" + std::to_string(number), 6000, 0, 0},
                  {"h" + std::to_string(number), 500, 0, 0, MILLPOND_DTYPE_BF16,
                   MILLPOND_DTYPE_FP32, true, number == 1}},
                 number + 1) {
    Status status;
    EXPECT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  }
  std::int32_t agree(Status* status) { return table().agree(job.runtime, group, status); }

  Job job;
  millpond_group group;
  Training training;
};

class Ranks : public ::testing::Test {
 protected:
  Ranks() {
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      ranks_.push_back(std::make_unique<Rank>(scratch_.path(), r, meeting_));
    }
  }
  // Runs body(rank, number) on a thread each.
  void together(const std::function<void(Rank&, std::uint32_t)>& body) {
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] { body(*ranks_[r], r); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  TemporaryDirectory scratch_;
  Meeting meeting_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(Ranks, agree_takes_one_round_and_says_nothing_when_all_is_well) {
  together([](Rank& rank, std::uint32_t) {
    Status status;
    rank.training.train(1, 2);
    EXPECT_EQ(rank.agree(&status), MILLPOND_OK) << status.text();
    rank.training.train(3);
    EXPECT_EQ(rank.agree(&status), MILLPOND_OK) << status.text();
  });
  EXPECT_EQ(meeting_.rounds(), 2u);
}

TEST_F(Ranks, a_failed_step_poisons_every_rank_and_is_named) {
  together([](Rank& rank, std::uint32_t number) {
    Status status;
    rank.training.train(1);
    if (number == 1) {
      rank.job.copy_answer = MILLPOND_E_IO;
      EXPECT_EQ(rank.training.step(rank.training.make_step(2), &status), MILLPOND_E_CALLBACK);
    } else {
      rank.training.train(2);
    }
    EXPECT_EQ(rank.agree(&status), number == 1 ? MILLPOND_E_CALLBACK : MILLPOND_E_PEER)
        << status.text();
    EXPECT_NE(std::string(status.message).find("rank 1"), std::string::npos) << status.message;
    EXPECT_NE(std::string(status.message).find("copy_main_to_model"), std::string::npos)
        << status.message;
    EXPECT_TRUE((status.flags & MILLPOND_STATUS_POISONED) != 0);
    EXPECT_EQ(rank.training.step(rank.training.make_step(3), &status), MILLPOND_E_POISONED);
    // Until a load: the next agree still fails.
    EXPECT_NE(rank.agree(&status), MILLPOND_OK);
  });
  EXPECT_EQ(meeting_.rounds(), 2u);
}

TEST_F(Ranks, a_refused_step_is_a_failure_too_unless_it_was_made_up_for) {
  together([](Rank& rank, std::uint32_t number) {
    Status status;
    Training::Step step = rank.training.make_step(1);
    if (number == 2) {
      Training::Step wrong = step;
      wrong.epoch = 99;
      EXPECT_EQ(rank.training.step(wrong, &status), MILLPOND_E_ARGUMENT);
    }
    EXPECT_EQ(rank.training.step(step, &status), MILLPOND_OK) << status.text();
    EXPECT_EQ(rank.agree(&status), MILLPOND_OK) << status.text();
    if (number == 2) {
      step.epoch = 99;
      EXPECT_EQ(rank.training.step(step, &status), MILLPOND_E_ARGUMENT);
    } else {
      EXPECT_EQ(rank.training.step(step, &status), MILLPOND_OK);
    }
    EXPECT_EQ(rank.agree(&status), number == 2 ? MILLPOND_E_ARGUMENT : MILLPOND_E_PEER);
    EXPECT_TRUE((status.flags & MILLPOND_STATUS_POISONED) != 0);
  });
}

TEST_F(Ranks, a_save_counts_on_all_ranks_and_a_staged_load_is_installed_on_all) {
  const std::string path = scratch_.path() + "/saved";
  together([&](Rank& rank, std::uint32_t number) {
    Status status;
    rank.training.train(1, 4);
    millpond_save_id id{};
    ASSERT_EQ(checkpoints().save_begin(rank.job.runtime, rank.group, str(path), &id, &status),
              MILLPOND_OK)
        << status.text();
    millpond_io_args io = io_args(path, 0);
    io.save_id = {id.text, std::strlen(id.text)};
    ASSERT_EQ(table().save_to(rank.training.store, &io, &status), MILLPOND_OK) << status.text();
    EXPECT_EQ(checkpoints().wait(rank.training.store, &status), MILLPOND_OK);
    ASSERT_EQ(checkpoints().save_commit(rank.job.runtime, rank.group, io.save_id, &status),
              MILLPOND_OK)
        << status.text();
    const std::vector<PlainParameter> saved = rank.training.plain;
    rank.training.train(5, 7);
    io.save_id = {};
    io.flags = MILLPOND_IO_STAGE;
    if (number == 2) {
      // One rank's refusal: nothing is installed anywhere.
      const std::string nowhere = path + "/nothing";
      io.path = str(nowhere);
      EXPECT_EQ(table().load_from(rank.training.store, &io, &status), MILLPOND_E_MISSING);
      io.path = str(path);
    } else {
      EXPECT_EQ(table().load_from(rank.training.store, &io, &status), MILLPOND_OK) << status.text();
    }
    EXPECT_NE(checkpoints().load_commit(rank.job.runtime, rank.group, &status), MILLPOND_OK);
    EXPECT_NE(std::string(status.message).find(number == 2 ? "" : "rank 2"), std::string::npos)
        << status.message;
    EXPECT_EQ(rank.training.state_differs(), "") << "as it was";
    EXPECT_EQ(table().load_from(rank.training.store, &io, &status), MILLPOND_OK) << status.text();
    EXPECT_EQ(rank.training.state_differs(), "") << "staged only";
    EXPECT_EQ(checkpoints().load_commit(rank.job.runtime, rank.group, &status), MILLPOND_OK)
        << status.text();
    rank.training.plain = saved;
    EXPECT_EQ(rank.training.models_differ() + rank.training.state_differs(), "");
    rank.training.train(8, 10);
    EXPECT_EQ(rank.training.models_differ() + rank.training.state_differs(), "");
  });
  // The host names no axes: whether other ranks made the save is asked for in two rounds more.
  EXPECT_EQ(meeting_.rounds(), 1u + 2u + 1u + 3u);
}

TEST_F(Ranks, a_save_that_one_rank_missed_counts_nowhere) {
  const std::string path = scratch_.path() + "/saved";
  together([&](Rank& rank, std::uint32_t number) {
    Status status;
    rank.training.train(1);
    millpond_save_id id{};
    ASSERT_EQ(checkpoints().save_begin(rank.job.runtime, rank.group, str(path), &id, &status),
              MILLPOND_OK);
    millpond_io_args io = io_args(path, 0);
    io.save_id = {id.text, std::strlen(id.text)};
    if (number != 0) {
      ASSERT_EQ(table().save_to(rank.training.store, &io, &status), MILLPOND_OK) << status.text();
    }
    EXPECT_EQ(checkpoints().save_commit(rank.job.runtime, rank.group, io.save_id, &status),
              number == 0 ? MILLPOND_E_STATE : MILLPOND_E_PEER)
        << status.text();
    io.save_id = {};
    EXPECT_EQ(table().load_from(rank.training.store, &io, &status), MILLPOND_E_MISSING);
    rank.training.train(2, 4);
    EXPECT_EQ(rank.training.state_differs(), "");
  });
  EXPECT_EQ(meeting_.rounds(), 3u);
}

TEST(Group, of_one_needs_no_allgather_and_a_larger_one_does) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 4096");
  Status status;
  EXPECT_EQ(table().agree(job.runtime, {0, 0, 1}, &status), MILLPOND_OK) << status.text();
  EXPECT_EQ(table().agree(job.runtime, {0, 0, 2}, &status), MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status.field, "host_api.allgather");
  EXPECT_EQ(table().agree(job.runtime, {0, 1, 1}, &status), MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status.field, "group.rank");
  EXPECT_EQ(table().agree(job.runtime, {0, 0, 0}, &status), MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status.field, "group.size");
}

}  // namespace
}  // namespace millpond::tests
