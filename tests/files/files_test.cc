// Checkpoint directories without a store.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "checkpoint/commit.h"
#include "checkpoint/digest.h"
#include "tests/checkpoint/saved_training.h"
#include "tests/files/ask.h"

namespace millpond::tests {
namespace {

class Files : public ::testing::Test {
 protected:
  // One rank, `steps` steps, saved in `path`.
  void train_and_save(const std::string& path, std::uint64_t steps,
                      const std::string& options = kSmallTiles) {
    Job job(scratch_.path(), options);
    Training training(job, "rank00000/opt0_0", usual_parameters());
    ASSERT_EQ(training.bind(&status_), MILLPOND_OK) << status_.text();
    training.train(1, steps);
    ASSERT_EQ(save(training, path, &status_), MILLPOND_OK) << status_.text();
    saved_ = everything(training);
  }
  Json ask(millpond_files_fn entry, const Json& request) {
    return tests::ask(entry, request, &status_);
  }

  TemporaryDirectory scratch_, a_, b_, c_;
  Status status_;
  Everything saved_;
};

TEST_F(Files, inspect_says_what_is_in_a_save) {
  train_and_save(a_.path(), 3);
  const Json answer = ask(files().inspect, {{"path", a_.path()}});
  ASSERT_FALSE(answer.is_null()) << status_.text();
  EXPECT_EQ(answer.at("save_id"), only_save(a_.path()).filename().string());
  EXPECT_EQ(answer.at("world_size"), 1);
  ASSERT_EQ(answer.at("stores").size(), 1U);
  const Json& store = answer.at("stores").at(0);
  EXPECT_EQ(store.at("uid"), "rank00000/opt0_0");
  EXPECT_EQ(store.at("step"), 3);
  EXPECT_EQ(store.at("exp_avg"), "fp32");
  std::uint64_t elements = 0, bytes = 0;
  for (const Parameter& parameter : usual_parameters()) elements += parameter.numel;
  for (const auto& entry :
       std::filesystem::directory_iterator(only_save(a_.path()) / "rank00000/opt0_0")) {
    if (entry.path().extension() == ".bin") bytes += entry.file_size();
  }
  EXPECT_EQ(answer.at("elements"), elements);
  EXPECT_EQ(answer.at("bytes"), bytes);
  ASSERT_EQ(answer.at("parameters").size(), usual_parameters().size());
  for (const Json& parameter : answer.at("parameters")) {
    if (parameter.at("key") != "norm") continue;
    EXPECT_EQ(parameter.at("kind"), "moments_only");
    EXPECT_EQ(parameter.at("global_shape"), Json::array({700}));
  }
}

TEST_F(Files, requests_are_checked) {
  EXPECT_TRUE(ask(files().inspect, Json::object()).is_null());
  EXPECT_EQ(status_.code, MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status_.field, "request.path");
  EXPECT_TRUE(ask(files().verify, {{"path", a_.path()}, {"save-id", ""}}).is_null());
  EXPECT_EQ(status_.code, MILLPOND_E_ARGUMENT);
  EXPECT_TRUE(ask(files().verify, {{"path", a_.path()}}).is_null());
  EXPECT_EQ(status_.code, MILLPOND_E_MISSING) << status_.text();
  EXPECT_TRUE(ask(files().reshard, {{"path", a_.path()}, {"to", b_.path()}}).is_null());
  EXPECT_EQ(status_.code, MILLPOND_E_ARGUMENT) << status_.text();
}

TEST_F(Files, verify_reads_every_byte_and_names_the_first_bad_block) {
  train_and_save(a_.path(), 2);
  const Json answer = ask(files().verify, {{"path", a_.path()}});
  ASSERT_FALSE(answer.is_null()) << status_.text();
  EXPECT_EQ(answer.at("bytes"), ask(files().inspect, {{"path", a_.path()}}).at("bytes"));
  for (const auto& entry :
       std::filesystem::directory_iterator(only_save(a_.path()) / "rank00000/opt0_0")) {
    if (entry.path().extension() != ".bin") continue;
    const std::string good = file_bytes(entry.path());
    for (std::size_t at = 5; at < good.size(); at += 4096) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x10);
      // The last one too: the first is the one that is told.
      bad.back() = static_cast<char>(bad.back() ^ 1);
      write_file(entry.path(), bad);
      EXPECT_TRUE(ask(files().verify, {{"path", a_.path()}}).is_null()) << at;
      EXPECT_EQ(status_.code, MILLPOND_E_CORRUPT) << status_.text();
      EXPECT_NE(std::string(status_.message).find(entry.path().filename().string()),
                std::string::npos);
      EXPECT_LE(status_.offset, at);
      EXPECT_LT(at, status_.offset + 16384);
    }
    write_file(entry.path(), good);
  }
  EXPECT_FALSE(ask(files().verify, {{"path", a_.path()}}).is_null()) << status_.text();
}

class FilesOf : public Files, public ::testing::WithParamInterface<const char*> {};

TEST_P(FilesOf, resharding_there_and_back_changes_nothing) {
  const std::string options = std::string(kSmallTiles) + ", \"moments\": \"" + GetParam() + "\"";
  train_and_save(a_.path(), 3, options);
  const Json three =
      ask(files().reshard, {{"path", a_.path()}, {"to", b_.path()}, {"world_size", 3}});
  ASSERT_FALSE(three.is_null()) << status_.text();
  EXPECT_EQ(three.at("stores"), 3);
  EXPECT_FALSE(ask(files().verify, {{"path", b_.path()}}).is_null()) << status_.text();
  ASSERT_FALSE(
      ask(files().reshard, {{"path", b_.path()}, {"to", c_.path()}, {"world_size", 1}}).is_null())
      << status_.text();
  for (const std::string& other : {b_.path(), c_.path()}) {
    for (const bool swapped : {false, true}) {
      const Json same = ask(files().diff, {{"path", swapped ? other : a_.path()},
                                           {"other", swapped ? a_.path() : other}});
      ASSERT_FALSE(same.is_null()) << status_.text();
      EXPECT_TRUE(same.at("equal")) << same.dump();
    }
    // A live store loads either, bit by bit.
    Job job(scratch_.path(), options);
    Training training(job, "rank00000/opt0_0", usual_parameters(), 4);
    ASSERT_EQ(training.bind(&status_), MILLPOND_OK);
    ASSERT_EQ(load(training, other, &status_), MILLPOND_OK) << status_.text();
    const Everything loaded = everything(training);
    EXPECT_EQ(loaded.segments, saved_.segments);
    EXPECT_EQ(loaded.counters, saved_.counters);
  }
}

INSTANTIATE_TEST_SUITE_P(Moments, FilesOf, ::testing::Values("fp32", "bf16", "fp16", "fp8_e4m3"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(Files, diff_finds_the_first_element_and_the_largest_difference) {
  train_and_save(a_.path(), 2);
  const Everything before = saved_;
  train_and_save(b_.path(), 3);
  const Json answer = ask(files().diff, {{"path", a_.path()}, {"other", b_.path()}});
  ASSERT_FALSE(answer.is_null()) << status_.text();
  EXPECT_FALSE(answer.at("equal"));
  EXPECT_EQ(answer.at("step_a"), 2);
  EXPECT_EQ(answer.at("step_b"), 3);
  // everything() has main, exp_avg, exp_avg_sq of each parameter, no main of "norm".
  std::size_t at = 0, rows = 0;
  const char* segments[] = {"main", "exp_avg", "exp_avg_sq"};
  for (const Parameter& parameter : usual_parameters()) {
    for (std::size_t s = parameter.model == MILLPOND_DTYPE_FP32 ? 1 : 0; s < 3; ++s, ++at) {
      std::uint64_t first = 0, count = 0;
      double most = 0;
      for (std::size_t e = 0; e < before.segments[at].size(); ++e) {
        const float x = before.segments[at][e], y = saved_.segments[at][e];
        if (std::memcmp(&x, &y, 4) == 0) continue;
        if (count++ == 0) first = e;
        most = std::max(most, std::fabs(static_cast<double>(x) - static_cast<double>(y)));
      }
      const Json* found = nullptr;
      for (const Json& row : answer.at("differing")) {
        if (row.at("key") == parameter.key && row.at("segment") == segments[s]) found = &row;
      }
      EXPECT_EQ(found != nullptr, count != 0) << parameter.key << " " << segments[s];
      if (found == nullptr) continue;
      ++rows;
      EXPECT_EQ(found->at("first"), first);
      EXPECT_EQ(found->at("count"), count);
      EXPECT_EQ(found->at("max_abs"), most);
    }
  }
  EXPECT_EQ(answer.at("differing").size(), rows);
  EXPECT_GT(rows, 5U);
}

TEST_F(Files, a_save_of_a_thousand_ranks_is_inspected_from_its_manifests_alone) {
  train_and_save(a_.path(), 1);
  const std::filesystem::path one = only_save(a_.path());
  const std::string manifest = file_bytes(one / "rank00000/opt0_0/manifest.json");
  checkpoint::Commit commit;
  commit.save_id = std::string(32, '5');
  commit.sequence = 1;
  commit.world_size = 1000;
  const std::filesystem::path many = std::filesystem::path(b_.path()) / commit.save_id;
  for (std::uint32_t rank = 0; rank < 1000; ++rank) {
    char uid[32];
    std::snprintf(uid, sizeof uid, "rank%05u/opt0_0", rank);
    std::string text = manifest;
    text.replace(text.find("rank00000"), 9, std::string(uid, 9));
    std::filesystem::create_directories(many / uid);
    write_file(many / uid / "manifest.json", text);  // and no bucket files at all
    commit.stores.push_back({rank, uid, text.size(), checkpoint::digest(text)});
  }
  write_file(many / "COMMIT.json", checkpoint::to_json(commit));
  const Json answer = ask(files().inspect, {{"path", b_.path()}});
  ASSERT_FALSE(answer.is_null()) << status_.text();
  EXPECT_EQ(answer.at("stores").size(), 1000U);
  EXPECT_EQ(answer.at("parameters").size(), usual_parameters().size());
  EXPECT_EQ(answer.at("bytes").get<std::uint64_t>(),
            1000 * ask(files().inspect, {{"path", a_.path()}}).at("bytes").get<std::uint64_t>());
}

}  // namespace
}  // namespace millpond::tests
