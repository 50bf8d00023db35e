// Saves that go on while the store does: what is saved is what was there when save_to was called.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cstring>
#include <thread>

#include "tests/checkpoint/saved_training.h"

namespace millpond::tests {
namespace {

constexpr std::uint64_t kBackground = MILLPOND_IO_COMMIT | MILLPOND_IO_BACKGROUND;

std::size_t open_files() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += entry.is_other() ? 0 : 1;
  }
  return count;
}

class Background : public ::testing::Test {
 protected:
  // On another filesystem than the scratch files where this machine has one: saves are copied.
  struct Elsewhere {
    Elsewhere() {
      char name[] = "/dev/shm/millpond-test-XXXXXX";
      if (mkdtemp(name) != nullptr) path = name;
    }
    ~Elsewhere() {
      if (!path.empty()) std::filesystem::remove_all(path);
    }
    Elsewhere(const Elsewhere&) = delete;
    Elsewhere& operator=(const Elsewhere&) = delete;
    std::string path;
  };
  std::string path() const { return saved_.path(); }
  std::int32_t wait(Training& training) { return checkpoints().wait(training.store, &status_); }
  std::uint32_t poll(Training& training) {
    millpond_save_progress progress{};
    progress.header = {sizeof(progress), MILLPOND_TYPE_SAVE_PROGRESS};
    EXPECT_EQ(checkpoints().poll(training.store, &progress, &status_), MILLPOND_OK);
    EXPECT_LE(progress.bytes_done, progress.bytes_total);
    return progress.state;
  }
  // What is in the checkpoint is this, and a store that resumes from it goes on from there.
  void expect_saved(const std::string& path, const std::vector<PlainParameter>& saved,
                    const std::string& options = kSmallTiles) {
    Job job(scratch_.path(), options);
    Training resumed(job, "s", usual_parameters(), 77);
    ASSERT_EQ(resumed.bind(&status_), MILLPOND_OK) << status_.text();
    ASSERT_EQ(load(resumed, path, &status_), MILLPOND_OK) << status_.text();
    take_over(resumed, saved);
    EXPECT_EQ(resumed.models_differ() + resumed.state_differs(), "");
  }

  TemporaryDirectory scratch_, saved_;
  Status status_;
};

// Tier sizes: all of the state dirty in memory, half of it, two tiles.
class BackgroundOf : public Background,
                     public ::testing::WithParamInterface<std::tuple<const char*, const char*>> {};

TEST_P(BackgroundOf, a_step_during_a_save_does_not_enter_it) {
  const std::string options =
      std::string("\"tile_elements\": 4096, \"bucket_elements\": 9000, \"io_engine\": \"") +
      std::get<1>(GetParam()) + "\", " + std::get<0>(GetParam());
  const auto run = [&](Training& training, std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t number = first; number <= last; ++number) {
      ASSERT_EQ(training.step(training.make_step(number), &status_), MILLPOND_OK) << status_.text();
    }
  };
  const Elsewhere elsewhere;
  for (const std::string& to : {path(), elsewhere.path + "/state"}) {
    const bool copied = to != path();
    if (copied && elsewhere.path.empty()) GTEST_SKIP() << "/dev/shm takes no directory here";
    // The same steps without a save.
    Job plain_job(scratch_.path(), options);
    Training plain(plain_job, "s", usual_parameters());
    ASSERT_EQ(plain.bind(&status_), MILLPOND_OK) << status_.text();
    run(plain, 1, 3);
    const Everything saved = everything(plain);
    run(plain, 4, 8);

    Job job(scratch_.path(), options + ", \"save_bytes_per_s\": 200000");
    Training training(job, "s", usual_parameters());
    ASSERT_EQ(training.bind(&status_), MILLPOND_OK) << status_.text();
    run(training, 1, 3);
    ASSERT_EQ(save(training, to, &status_, kBackground), MILLPOND_OK) << status_.text();
    run(training, 4, 6);
    if (copied) {
      EXPECT_EQ(poll(training), MILLPOND_SAVE_WRITING) << "the steps were not during the save";
    }
    ASSERT_EQ(wait(training), MILLPOND_OK) << status_.text();
    EXPECT_EQ(poll(training), MILLPOND_SAVE_WRITTEN);
    EXPECT_TRUE(job.log_has(copied ? " 0 linked or cloned" : " 0 copied")) << "by another way";
    run(training, 7, 8);
    EXPECT_EQ(everything(training), everything(plain));

    ASSERT_EQ(load(training, to, &status_), MILLPOND_OK) << status_.text();
    const Everything loaded = everything(training);
    EXPECT_EQ(loaded.counters, saved.counters);
    EXPECT_EQ(loaded.segments, saved.segments);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tiers, BackgroundOf,
    ::testing::Combine(::testing::Values("\"host_memory_bytes\": \"auto\"",
                                         "\"host_memory_bytes\": 400000, \"moments\": \"bf16\"",
                                         "\"host_memory_bytes\": 120000",
                                         "\"host_memory_bytes\": 120000, \"moments\": \"fp16\""),
                       ::testing::Values("auto", "threads")));

TEST_F(Background, saves_follow_each_other_whatever_happens_in_between) {
  Job job(scratch_.path(),
          "\"tile_elements\": 4096, \"bucket_elements\": 9000, "
          "\"host_memory_bytes\": 160000");
  Training training(job, "s", usual_parameters());
  ASSERT_EQ(training.bind(&status_), MILLPOND_OK);
  std::uint64_t number = 0;
  std::size_t most_files = 0;
  const auto save_and_check = [&](const char* what) {
    SCOPED_TRACE(what);
    ASSERT_EQ(save(training, path(), &status_, kBackground), MILLPOND_OK) << status_.text();
    ASSERT_EQ(wait(training), MILLPOND_OK) << status_.text();
    EXPECT_EQ(training.state_differs(), "");
    EXPECT_FALSE(only_save(path()).empty());
    expect_saved(path(), training.plain);
  };
  for (int round = 0; round < 3; ++round) {
    training.train(++number);
    save_and_check("after a step");
    save_and_check("two in a row");
    Training::Step skipped = training.make_step(++number);
    skipped.found_inf = 1;
    ASSERT_EQ(training.step(skipped, &status_), MILLPOND_OK) << status_.text();
    save_and_check("after a skipped step");
    Training::Step partly = training.make_step(++number);
    for (std::size_t i = 0; i < partly.has_grad.size(); ++i) {
      if (i % 3 != 1) partly.has_grad[i] = 0;
    }
    ASSERT_EQ(training.step(partly, &status_), MILLPOND_OK) << status_.text();
    training.resident_step(partly);
    save_and_check("after a step of a few parameters");
    Training::Step none = training.make_step(++number);
    std::fill(none.has_grad.begin(), none.has_grad.end(), 0);
    ASSERT_EQ(training.step(none, &status_), MILLPOND_OK) << status_.text();
    training.resident_step(none);
    save_and_check("after a step without gradients");
    // Files of older generations do not pile up.
    if (round == 0) most_files = open_files();
    EXPECT_LE(open_files(), most_files);
  }
  ASSERT_EQ(load(training, path(), &status_), MILLPOND_OK) << status_.text();
  EXPECT_EQ(training.state_differs(), "");
  training.train(number + 1, number + 3);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

TEST_F(Background, a_save_while_another_is_written_waits_or_is_refused_as_asked) {
  const Elsewhere elsewhere;
  if (elsewhere.path.empty()) GTEST_SKIP() << "/dev/shm takes no directory here";
  Job job(scratch_.path(), std::string(kSmallTiles) + ", \"save_bytes_per_s\": 400000");
  Training training(job, "s", usual_parameters());
  ASSERT_EQ(training.bind(&status_), MILLPOND_OK);
  training.train(1);
  ASSERT_EQ(save(training, elsewhere.path, &status_, kBackground), MILLPOND_OK) << status_.text();
  training.train(2);
  EXPECT_EQ(save(training, elsewhere.path, &status_, kBackground | MILLPOND_IO_FAIL_IF_BUSY),
            MILLPOND_E_BUSY);
  const std::filesystem::path first = only_save(elsewhere.path);
  ASSERT_EQ(save(training, elsewhere.path, &status_, kBackground), MILLPOND_OK) << status_.text();
  const std::vector<PlainParameter> second = training.plain;
  training.train(3);
  ASSERT_EQ(wait(training), MILLPOND_OK) << status_.text();
  EXPECT_NE(only_save(elsewhere.path), first);
  expect_saved(elsewhere.path, second);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

TEST_F(Background, a_cancelled_or_failed_save_leaves_the_store_and_the_older_save) {
  const Elsewhere elsewhere;
  if (elsewhere.path.empty()) GTEST_SKIP() << "/dev/shm takes no directory here";
  Job job(scratch_.path(), std::string(kSmallTiles) + ", \"save_bytes_per_s\": 2000000");
  Training training(job, "s", usual_parameters());
  ASSERT_EQ(training.bind(&status_), MILLPOND_OK);
  training.train(1, 2);
  ASSERT_EQ(save(training, elsewhere.path, &status_), MILLPOND_OK) << status_.text();
  const std::filesystem::path older = only_save(elsewhere.path);
  const std::vector<PlainParameter> saved = training.plain;
  for (std::uint64_t number = 3; number <= 6; ++number) {
    training.train(number);
    ASSERT_EQ(save(training, elsewhere.path, &status_, kBackground), MILLPOND_OK);
    std::this_thread::sleep_for(std::chrono::milliseconds(number * 10));
    ASSERT_EQ(checkpoints().cancel(training.store, &status_), MILLPOND_OK) << status_.text();
    EXPECT_EQ(poll(training), MILLPOND_SAVE_FAILED);
    EXPECT_EQ(wait(training), MILLPOND_E_CANCELLED);
    EXPECT_EQ(only_save(elsewhere.path), older);
  }
  // From inside: the host's answer to progress, in a save that is waited for.
  std::uint64_t beats = 0;
  job.in_progress = [&] { job.cancel = ++beats == 2; };
  EXPECT_EQ(save(training, elsewhere.path, &status_), MILLPOND_E_CANCELLED) << status_.text();
  job.in_progress = {};
  job.cancel = false;
  EXPECT_EQ(only_save(elsewhere.path), older);
  EXPECT_EQ(checkpoints().cancel(training.store, &status_), MILLPOND_OK) << "nothing in flight";
  training.train(7);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
  expect_saved(elsewhere.path, saved);
}

TEST_F(Background, no_space_for_the_next_files_is_an_error_before_anything_changed) {
  TemporaryDirectory small;
  if (mount("tmpfs", small.path().c_str(), "tmpfs", 0, "size=500k") != 0) {
    GTEST_SKIP() << "mounting a tmpfs is not allowed here: " << strerror(errno);
  }
  {
    Job job(small.path(), kSmallTiles);
    Training training(job, "s", usual_parameters());
    ASSERT_EQ(training.bind(&status_), MILLPOND_OK) << status_.text();
    training.train(1, 2);
    const std::size_t files = open_files();
    EXPECT_EQ(save(training, path(), &status_, kBackground), MILLPOND_E_NO_SPACE) << status_.text();
    EXPECT_GT(status_.wanted, status_.got);
    EXPECT_EQ(open_files(), files);
    EXPECT_TRUE(std::filesystem::is_empty(path()));
    training.train(3, 4);
    EXPECT_EQ(training.models_differ() + training.state_differs(), "");
  }
  umount2(small.path().c_str(), MNT_DETACH);
}

TEST_F(Background, R11_a_linked_file_follows_the_umask_and_a_private_one_does_not) {
  for (const mode_t mask : {022U, 077U, 007U}) {
    const mode_t before = umask(mask);
    Job job(scratch_.path(), kSmallTiles);
    Training training(job, "s", usual_parameters());
    ASSERT_EQ(training.bind(&status_), MILLPOND_OK);
    training.train(1);
    ASSERT_EQ(save(training, path(), &status_), MILLPOND_OK) << status_.text();
    umask(before);
    std::size_t linked = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path())) {
      struct stat info {};
      ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0777, (S_ISDIR(info.st_mode) ? 0777U : 0666U) & ~mask)
          << entry.path();
      linked += entry.path().extension() == ".bin" ? 1 : 0;
    }
    EXPECT_GE(linked, 3U);
    EXPECT_TRUE(job.log_has(" 0 copied")) << "the files were not linked: nothing was tried";
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      struct stat info {};
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
      if (target.rfind(scratch_.path(), 0) != 0 || stat(entry.path().c_str(), &info) != 0) continue;
      if (S_ISREG(info.st_mode) && info.st_nlink == 0) {
        EXPECT_EQ(info.st_mode & 0777, 0600U) << target;
      }
    }
  }
}

TEST_F(Background, stores_of_a_runtime_are_written_at_once_and_count_together) {
  const Elsewhere elsewhere;
  if (elsewhere.path.empty()) GTEST_SKIP() << "/dev/shm takes no directory here";
  Job job(scratch_.path(), std::string(kSmallTiles) + ", \"save_bytes_per_s\": 400000");
  Training dense(job, "rank00000/opt0_0", usual_parameters());
  Training expert(job, "rank00000/opt0_1", {{"expert", 9'000, 0, 0}}, 2);
  ASSERT_EQ(dense.bind(&status_), MILLPOND_OK);
  ASSERT_EQ(expert.bind(&status_), MILLPOND_OK);
  dense.train(1);
  expert.train(1);
  const Everything dense_saved = everything(dense), expert_saved = everything(expert);
  millpond_save_id id{};
  const std::string to = elsewhere.path;
  ASSERT_EQ(checkpoints().save_begin(job.runtime, kAlone, str(to), &id, &status_), MILLPOND_OK);
  ASSERT_EQ(save(dense, to, &status_, MILLPOND_IO_BACKGROUND, id.text), MILLPOND_OK);
  ASSERT_EQ(save(expert, to, &status_, MILLPOND_IO_BACKGROUND, id.text), MILLPOND_OK);
  dense.train(2);
  expert.train(2);
  EXPECT_EQ(load(dense, to, &status_), MILLPOND_E_MISSING) << "not committed";
  ASSERT_EQ(checkpoints().save_commit(job.runtime, kAlone, str(id.text), &status_), MILLPOND_OK)
      << status_.text();
  EXPECT_EQ(dense.models_differ() + expert.models_differ(), "");
  ASSERT_EQ(load(dense, to, &status_, MILLPOND_IO_STAGE), MILLPOND_OK) << status_.text();
  ASSERT_EQ(load(expert, to, &status_, MILLPOND_IO_STAGE), MILLPOND_OK) << status_.text();
  ASSERT_EQ(checkpoints().load_commit(job.runtime, kAlone, &status_), MILLPOND_OK);
  EXPECT_EQ(everything(expert), expert_saved);
  EXPECT_EQ(everything(dense).counters, dense_saved.counters);
  EXPECT_EQ(everything(dense).segments, dense_saved.segments);
}

TEST_F(Background, a_store_that_goes_finishes_its_save_first) {
  std::vector<PlainParameter> saved;
  {
    Job job(scratch_.path(), std::string(kSmallTiles) + ", \"save_bytes_per_s\": 2000000");
    Training training(job, "s", usual_parameters());
    ASSERT_EQ(training.bind(&status_), MILLPOND_OK);
    training.train(1, 2);
    saved = training.plain;
    ASSERT_EQ(save(training, path(), &status_, kBackground), MILLPOND_OK) << status_.text();
  }
  expect_saved(path(), saved);
}

TEST_F(Background, rebinding_and_suspending_wait_for_what_a_save_still_reads) {
  Job job(scratch_.path(), "\"tile_elements\": 4096, \"bucket_elements\": 9000");
  Training training(job, "s", usual_parameters());
  ASSERT_EQ(training.bind(&status_), MILLPOND_OK);
  training.train(1, 2);
  std::vector<PlainParameter> saved = training.plain;
  ASSERT_EQ(save(training, path(), &status_, kBackground), MILLPOND_OK) << status_.text();
  ASSERT_EQ(phases().suspend(job.runtime, MILLPOND_SUSPEND_HOST_TIER, &status_), MILLPOND_OK)
      << status_.text();
  ASSERT_EQ(save(training, path(), &status_, kBackground), MILLPOND_OK) << status_.text();
  ASSERT_EQ(phases().resume(job.runtime, &status_), MILLPOND_OK);
  training.train(3);
  ASSERT_EQ(wait(training), MILLPOND_OK) << status_.text();
  expect_saved(path(), saved);
  saved = training.plain;
  ASSERT_EQ(save(training, path(), &status_, kBackground), MILLPOND_OK) << status_.text();
  // Another order of parameters: everything moves into files of another layout.
  v1::HostProfile profile = training.profile();
  for (int i = 0; i < profile.shards_size(); ++i) {
    profile.mutable_shards(i)->set_host_bucket(7);
  }
  ASSERT_EQ(training.bind(profile, &status_), MILLPOND_OK) << status_.text();
  training.train(4, 5);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
  ASSERT_EQ(wait(training), MILLPOND_OK) << status_.text();
  expect_saved(path(), saved);
}

}  // namespace
}  // namespace millpond::tests
