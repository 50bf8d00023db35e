// Loads that must be refused: the live store is afterwards what it was, byte for byte, and trains
// on.
#include <gtest/gtest.h>

#include <random>

#include "tests/checkpoint/saved_training.h"

namespace millpond::tests {
namespace {

class Refusal : public ::testing::Test {
 protected:
  Refusal() : job_(scratch_.path(), kSmallTiles), live_(job_, "s", usual_parameters()) {
    EXPECT_EQ(live_.bind(&status_), MILLPOND_OK) << status_.text();
    live_.train(1, 2);
    EXPECT_EQ(save(live_, path(), &status_), MILLPOND_OK) << status_.text();
    live_.train(3, 4);
    before_ = everything(live_);
  }
  std::string path() const { return saved_.path(); }

  // Refused with this code and these words, and nothing else happened.
  void expect_refused(std::int32_t code, const std::vector<std::string>& words) {
    EXPECT_EQ(load(live_, path(), &status_), code) << status_.text();
    for (const std::string& word : words) {
      EXPECT_NE(std::string(status_.message).find(word), std::string::npos)
          << word << ": " << status_.message;
    }
    EXPECT_EQ(everything(live_), before_);
  }

  // A checkpoint made by a store of these parameters; its profile may be changed.
  void save_other(const std::vector<Parameter>& parameters,
                  const std::function<void(v1::HostProfile&)>& change = {},
                  const std::string& uid = "s") {
    Job job(scratch_.path(), kSmallTiles);
    Training other(job, uid, parameters, 9);
    v1::HostProfile profile = other.profile();
    if (change) change(profile);
    ASSERT_EQ(other.bind(profile, &status_), MILLPOND_OK) << status_.text();
    ASSERT_EQ(other.step(other.make_step(1), &status_), MILLPOND_OK) << status_.text();
    ASSERT_EQ(save(other, path(), &status_), MILLPOND_OK) << status_.text();
  }

  TemporaryDirectory scratch_, saved_;
  Job job_;
  Training live_;
  Everything before_;
  Status status_;
};

TEST_F(Refusal, R03_R04_of_damaged_files_changes_nothing_and_the_run_goes_on) {
  const std::filesystem::path save = only_save(path());
  std::vector<std::filesystem::path> files = {save / "COMMIT.json"};
  for (const auto& entry : std::filesystem::directory_iterator(save / "s")) {
    files.push_back(entry.path());
  }
  ASSERT_GE(files.size(), 8U);
  std::mt19937_64 random(3);
  for (const std::filesystem::path& file : files) {
    const std::string good = file_bytes(file);
    const std::string name = file.filename().string();
    const auto refused = [&] { expect_refused(MILLPOND_E_CORRUPT, {file.string(), "at offset"}); };
    for (const std::size_t at : {std::size_t{1}, random() % good.size(), good.size() - 1}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x40);
      write_file(file, bad);
      refused();
    }
    for (const std::size_t size : {good.size() - 1, good.size() / 2}) {
      write_file(file, good.substr(0, size));
      refused();
    }
    write_file(file, good + good.substr(0, 4096));
    refused();
    std::filesystem::remove(file);
    expect_refused(MILLPOND_E_MISSING, {name});
    write_file(file, good);
    if (HasFailure()) return;
  }
  live_.train(5, 8);
  EXPECT_EQ(live_.models_differ() + live_.state_differs(), "");
  EXPECT_EQ(load(live_, path(), &status_), MILLPOND_OK) << status_.text();
}

TEST_F(Refusal, R03_the_last_block_of_the_last_bucket_is_read_before_anything_is_installed) {
  const std::filesystem::path store = only_save(path()) / "s";
  std::filesystem::path last;
  for (const auto& entry : std::filesystem::directory_iterator(store)) {
    if (entry.path().extension() == ".bin" && entry.path() > last) last = entry.path();
  }
  std::string bytes = file_bytes(last);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(last, bytes);
  expect_refused(MILLPOND_E_CORRUPT, {last.filename().string(), "wanted", "got"});
  EXPECT_GT(status_.offset, 0U);
  EXPECT_NE(status_.wanted, status_.got);
}

TEST_F(Refusal, parameters_that_are_missing_too_many_or_of_another_shape_are_named) {
  std::vector<Parameter> parameters = usual_parameters();
  parameters[2].key = "layer.renamed";
  save_other(parameters);
  expect_refused(MILLPOND_E_MISSING, {"layer.weight"});

  parameters = usual_parameters();
  parameters.push_back({"one.more", 50, 0, 0});
  save_other(parameters);
  expect_refused(MILLPOND_E_MISMATCH, {"one.more", "0..50"});

  parameters = usual_parameters();
  parameters[5].numel = 4'999;
  save_other(parameters);
  expect_refused(MILLPOND_E_MISMATCH, {"head", "[4999]", "[5000]"});

  // The same number of elements in another shape.
  save_other(usual_parameters(), [](v1::HostProfile& profile) {
    v1::Shard& shard = *profile.mutable_shards(5);
    shard.mutable_global_shape()->Clear();
    shard.mutable_box_offset()->Clear();
    shard.mutable_box_shape()->Clear();
    for (const std::uint64_t size : {50, 100}) {
      shard.add_global_shape(size);
      shard.add_box_offset(0);
      shard.add_box_shape(size);
    }
  });
  expect_refused(MILLPOND_E_MISMATCH, {"head", "[50, 100]", "[5000]"});

  // A parameter that was its own main.
  parameters = usual_parameters();
  parameters[4].model = MILLPOND_DTYPE_BF16;
  save_other(parameters);
  expect_refused(MILLPOND_E_MISMATCH, {"norm", "main"});
}

TEST_F(Refusal, B33_another_split_over_ranks_is_refused_with_both_ranges) {
  save_other(usual_parameters(), [](v1::HostProfile& profile) {
    // As a rank of two would have it: the second half of a parameter twice as large.
    v1::Shard& shard = *profile.mutable_shards(2);
    shard.set_global_shape(0, 8'192);
    shard.set_box_shape(0, 8'192);
    shard.set_flat_begin(4'096);
    shard.set_flat_end(8'192);
  });
  expect_refused(MILLPOND_E_MISMATCH, {"layer.weight", "8192", "4096"});
}

TEST_F(Refusal, another_stores_checkpoint_is_not_taken) {
  save_other(usual_parameters(), {}, "rank00001/other");
  expect_refused(MILLPOND_E_MISSING, {"rank00001/other", "world size 1"});
}

TEST_F(Refusal, the_counter_of_a_group_must_be_one_number) {
  // Counters by parameter, some of which had no gradient, for a store that counts by group.
  Job job(scratch_.path(), kSmallTiles);
  Training by_group(job, "s", usual_parameters(), 3, v1::COUNTER_PER_GROUP);
  ASSERT_EQ(by_group.bind(&status_), MILLPOND_OK);
  const Everything before = everything(by_group);
  EXPECT_EQ(load(by_group, path(), &status_), MILLPOND_E_MISMATCH) << status_.text();
  EXPECT_NE(std::string(status_.message).find("counter"), std::string::npos) << status_.message;
  EXPECT_EQ(everything(by_group), before);
}

TEST_F(Refusal, arguments_are_checked) {
  EXPECT_EQ(load(live_, path(), &status_, MILLPOND_IO_COMMIT), MILLPOND_E_ARGUMENT);
  EXPECT_EQ(load(live_, path(), &status_, 1ull << 40), MILLPOND_E_ARGUMENT);
  EXPECT_EQ(load(live_, "", &status_), MILLPOND_E_ARGUMENT);
  EXPECT_EQ(load(live_, path(), &status_, 0, "newest"), MILLPOND_E_ARGUMENT);
  EXPECT_EQ(load(live_, path(), &status_, 0, "0123456789abcdef0123456789abcdef"),
            MILLPOND_E_MISSING);
  EXPECT_EQ(save(live_, path(), &status_, MILLPOND_IO_STAGE), MILLPOND_E_ARGUMENT);
  EXPECT_EQ(save(live_, path(), &status_, 0), MILLPOND_E_STATE);
  EXPECT_EQ(save(live_, path(), &status_, 0, "0123456789abcdef0123456789abcdef"), MILLPOND_E_STATE);
  EXPECT_EQ(save(live_, path(), &status_, MILLPOND_IO_COMMIT, "0123456789abcdef0123456789abcdef"),
            MILLPOND_E_ARGUMENT);
  EXPECT_EQ(everything(live_), before_);
  EXPECT_EQ(load(live_, path(), &status_, 0, only_save(path()).filename().string()), MILLPOND_OK);
}

TEST_F(Refusal, a_cancelled_load_changes_nothing) {
  std::uint64_t beats = 0;
  job_.in_progress = [&] { job_.cancel = ++beats == 3; };
  expect_refused(MILLPOND_E_CANCELLED, {"load"});
  job_.in_progress = {};
  job_.cancel = false;
  live_.train(5, 6);
  EXPECT_EQ(live_.models_differ() + live_.state_differs(), "");
  EXPECT_EQ(load(live_, path(), &status_), MILLPOND_OK) << status_.text();
}

TEST_F(Refusal, a_staged_load_changes_nothing_until_it_is_committed) {
  ASSERT_EQ(load(live_, path(), &status_, MILLPOND_IO_STAGE), MILLPOND_OK) << status_.text();
  EXPECT_EQ(everything(live_), before_);
  live_.train(5);
  EXPECT_EQ(live_.models_differ() + live_.state_differs(), "");
  ASSERT_EQ(checkpoints().load_commit(job_.runtime, {0, 0, 1}, &status_), MILLPOND_OK)
      << status_.text();
  EXPECT_EQ(live_.counter(0), 2U);
  EXPECT_NE(everything(live_), before_);
  // Nothing is staged any more.
  EXPECT_EQ(checkpoints().load_commit(job_.runtime, {0, 0, 1}, &status_), MILLPOND_E_STATE);
}

}  // namespace
}  // namespace millpond::tests
