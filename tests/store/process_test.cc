// The process around the store: threads, callbacks, fork, phases, killed runs, other jobs.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/store/training.h"

namespace millpond::tests {
namespace {

std::vector<Parameter> three_parameters() {
  return {{"a", 50000, 0, 0}, {"b", 90000, 2, 1}, {"n", 7000, 0, 1, MILLPOND_DTYPE_FP32}};
}

constexpr char kThreeInLittle[] = "\"tile_elements\": 4096, \"host_memory_bytes\": 600000";

// Bytes of mappings that are kept out of core dumps and of children: the pinned region's marks.
std::uint64_t region_bytes() {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  std::uint64_t bytes = 0, size = 0;
  while (std::getline(smaps, line)) {
    if (line.rfind("Size:", 0) == 0) size = std::stoull(line.substr(5)) * 1024;
    if (line.rfind("VmFlags:", 0) != 0) continue;
    std::istringstream flags(line.substr(8));
    std::string flag;
    bool dont_dump = false, dont_fork = false;
    while (flags >> flag) {
      dont_dump |= flag == "dd";
      dont_fork |= flag == "dc";
    }
    if (dont_dump && dont_fork) bytes += size;
  }
  return bytes;
}

TEST(Phase, suspend_gives_the_memory_back_to_the_byte_and_resume_goes_on) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kThreeInLittle);
  Training training(job, "s", three_parameters());
  Status status;
  const std::uint64_t before = region_bytes();
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  millpond_runtime_figures figures{};
  figures.header = {sizeof(figures), MILLPOND_TYPE_RUNTIME_FIGURES};
  ASSERT_EQ(reports().runtime(job.runtime, &figures, &status), MILLPOND_OK);
  EXPECT_GT(figures.host_bytes, 0u);
  EXPECT_LE(figures.host_bytes, 600000u);
  EXPECT_EQ(region_bytes() - before, figures.host_bytes);
  training.train(1, 9);
  ASSERT_EQ(phases().suspend(job.runtime, MILLPOND_SUSPEND_HOST_TIER, &status), MILLPOND_OK)
      << status.text();
  EXPECT_EQ(region_bytes(), before);
  ASSERT_EQ(reports().runtime(job.runtime, &figures, &status), MILLPOND_OK);
  EXPECT_EQ(figures.host_bytes, 0u);
  EXPECT_EQ(phases().suspend(job.runtime, MILLPOND_SUSPEND_HOST_TIER, &status), MILLPOND_OK);
  EXPECT_EQ(training.step(training.make_step(10), &status), MILLPOND_E_STATE) << status.text();
  EXPECT_EQ(training.bind(&status), MILLPOND_E_STATE) << status.text();
  EXPECT_EQ(table().unbind(training.store, &status), MILLPOND_E_STATE);
  float value = 0;
  EXPECT_EQ(states().read(training.store, 1000, 0, 0, 1, &value, &status), MILLPOND_E_STATE);
  EXPECT_EQ(phases().suspend(job.runtime, 64, &status), MILLPOND_E_ARGUMENT);
  ASSERT_EQ(phases().resume(job.runtime, &status), MILLPOND_OK) << status.text();
  EXPECT_EQ(phases().resume(job.runtime, &status), MILLPOND_OK) << status.text();
  EXPECT_GT(region_bytes(), before);
  training.train(10, 20);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

TEST(Phase, suspended_store_is_saved_from_its_files) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kThreeInLittle);
  Training training(job, "s", three_parameters());
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(1, 6);
  const std::string path = scratch.path() + "/saved";
  millpond_io_args io = io_args(path);
  for (const std::uint64_t flags : {0ull, 1ull}) {
    ASSERT_EQ(phases().suspend(job.runtime, flags, &status), MILLPOND_OK) << status.text();
    ASSERT_EQ(table().save_to(training.store, &io, &status), MILLPOND_OK) << status.text();
    ASSERT_EQ(phases().resume(job.runtime, &status), MILLPOND_OK) << status.text();
    const std::vector<PlainParameter> saved = training.plain;
    training.train(7, 9);
    training.plain = saved;
    io.flags = 0;
    ASSERT_EQ(table().load_from(training.store, &io, &status), MILLPOND_OK) << status.text();
    io.flags = MILLPOND_IO_COMMIT;
    EXPECT_EQ(training.state_differs(), "");
    // fp32 parameters are the host's own to restore.
    for (std::uint64_t i = 0; i < training.parameters[2].numel; ++i) {
      put(training.models[2], MILLPOND_DTYPE_FP32, i, saved[2].main[i]);
    }
    EXPECT_EQ(training.models_differ(), "");
  }
}

TEST(Callbacks, come_on_the_calling_thread_and_may_not_call_back) {
  TemporaryDirectory scratch;
  static std::atomic<bool> elsewhere;
  static std::thread::id caller;
  elsewhere = false;
  caller = std::this_thread::get_id();
  Job job(scratch.path(),
          std::string(kThreeInLittle) +
              ", \"io_engine\": \"threads\", \"log_level\": "
              "\"debug\", \"update_threads\": 3",
          [](millpond_host_api& api) {
            api.log = [](void*, std::uint32_t, millpond_str) {
              if (std::this_thread::get_id() != caller) elsewhere = true;
            };
          });
  Training training(job, "s", three_parameters());
  Status inner, status;
  std::int32_t code = MILLPOND_OK;
  job.in_progress = [&] {
    if (std::this_thread::get_id() != caller) elsewhere = true;
    code = table().unbind(training.store, &inner);
  };
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_EQ(code, MILLPOND_E_STATE) << inner.text();
  EXPECT_NE(std::string(inner.message).find("callback"), std::string::npos) << inner.text();
  training.train(1, 5);
  // Another thread's call: its callbacks are seen there.
  std::thread other([&] {
    caller = std::this_thread::get_id();
    training.train(6, 8);
  });
  other.join();
  EXPECT_FALSE(elsewhere);
  EXPECT_EQ(training.models_differ(), "");
}

TEST(Callbacks, that_leave_their_answer_unset_have_failed) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kThreeInLittle, [](millpond_host_api& api) {
    api.release_main = [](void*, millpond_str, const std::uint64_t*, std::uint64_t, std::int32_t*) {
    };
  });
  std::vector<Parameter> given = three_parameters();
  given[0].given_main = true;
  Training training(job, "s", given);
  Status status;
  EXPECT_EQ(training.bind(&status), MILLPOND_E_CALLBACK) << status.text();
  EXPECT_STREQ(status.field, "host_api.release_main");
}

TEST(Threads, a_second_one_waits_its_turn) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kThreeInLittle);
  Training one(job, "one", three_parameters(), 1), two(job, "two", three_parameters(), 2);
  Status status;
  ASSERT_EQ(one.bind(&status), MILLPOND_OK) << status.text();
  ASSERT_EQ(two.bind(&status), MILLPOND_OK) << status.text();
  std::thread other([&] { two.train(1, 12); });
  one.train(1, 12);
  other.join();
  EXPECT_EQ(one.models_differ() + two.models_differ(), "");
  EXPECT_EQ(one.state_differs() + two.state_differs(), "");
}

TEST(Fork, the_child_is_refused_and_the_parent_goes_on) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), kThreeInLittle);
  Training training(job, "s", three_parameters());
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  training.train(1, 4);
  const Training::Step next = training.make_step(5);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Status told;
    int wrong = 0;
    wrong += training.step(next, &told) != MILLPOND_E_FORKED;
    wrong += table().agree(job.runtime, {0, 0, 1}, &told) != MILLPOND_E_FORKED;
    wrong += phases().suspend(job.runtime, 1, &told) != MILLPOND_E_FORKED;
    wrong += table().destroy(training.store, &told) != MILLPOND_E_FORKED;
    wrong += table().runtime_destroy(job.runtime, &told) != MILLPOND_E_FORKED;
    _exit(wrong);
  }
  int ended = 0;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_TRUE(WIFEXITED(ended));
  EXPECT_EQ(WEXITSTATUS(ended), 0) << "calls that were not refused";
  training.train(5, 12);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

std::size_t entries(const std::string& directory) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

TEST(Scratch, of_a_killed_run_is_reclaimed_by_the_next) {
  TemporaryDirectory scratch;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Job job(scratch.path(), kThreeInLittle);
    Training training(job, "s", three_parameters());
    Status status;
    const char answer = training.bind(&status) == MILLPOND_OK ? 'y' : 'n';
    training.train(1, 2);
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char answer = 'n';
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  EXPECT_EQ(entries(scratch.path()), 1u);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  int ended = 0;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_EQ(entries(scratch.path()), 1u) << "nobody was there to remove it";
  Job job(scratch.path(), kThreeInLittle);
  Training training(job, "s", three_parameters());
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_EQ(entries(scratch.path()), 1u);
  EXPECT_TRUE(job.log_has("reclaimed 1"));
  close(ready[0]);
  close(ready[1]);
}

TEST(Scratch, of_two_jobs_with_one_root_does_not_meet) {
  TemporaryDirectory scratch;
  Job first(scratch.path(), kThreeInLittle), second(scratch.path(), kThreeInLittle);
  Training one(first, "s", three_parameters(), 1), two(second, "s", three_parameters(), 2);
  Status status;
  ASSERT_EQ(one.bind(&status), MILLPOND_OK) << status.text();
  one.train(1, 3);
  ASSERT_EQ(two.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_EQ(entries(scratch.path()), 2u);
  for (std::uint64_t number = 4; number < 12; ++number) {
    one.train(number);
    two.train(number);
  }
  EXPECT_EQ(one.state_differs() + two.state_differs(), "");
  ASSERT_EQ(first.destroy(&status), MILLPOND_OK) << status.text();
  EXPECT_EQ(entries(scratch.path()), 1u);
  two.train(12, 14);
  EXPECT_EQ(two.models_differ() + two.state_differs(), "");
}

TEST(Scratch, several_directories_share_the_bytes) {
  TemporaryDirectory one, two, three;
  Job job("[\"" + one.path() + "\", \"" + two.path() + "\", \"" + three.path() + "\"]",
          "\"tile_elements\": 4096, \"bucket_elements\": 4096, \"host_memory_bytes\": 600000");
  std::vector<Parameter> many;
  for (int i = 0; i < 24; ++i) {
    many.push_back({"p" + std::to_string(i), 4096u + 512u * static_cast<unsigned>(i % 5), 0, 0});
  }
  Training training(job, "s", many);
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  ASSERT_EQ(training.report.plan().directories_size(), 3);
  std::uint64_t least = UINT64_MAX, most = 0;
  for (const v1::Directory& directory : training.report.plan().directories()) {
    least = std::min<std::uint64_t>(least, directory.bytes());
    most = std::max<std::uint64_t>(most, directory.bytes());
  }
  EXPECT_GT(least, 0u);
  EXPECT_LE(most - least, 7168u * 12) << "they differ by one bucket at most";
  training.train(1, 10);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

}  // namespace
}  // namespace millpond::tests
