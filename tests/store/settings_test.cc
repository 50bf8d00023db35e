// Streamed equals resident, bit by bit, under every pair of settings that must not matter.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "tests/store/campaign.h"
#include "tests/store/training.h"

namespace millpond::tests {
namespace {

// 3 million elements, 36 MB of state: more than the ring of 32 MiB, so that "some" holds tiles
// between steps whatever their size.
constexpr std::uint64_t kMebibyte = 1 << 20;

struct Option {
  const char* name;
  std::vector<const char*> values;
};

const std::vector<Option>& settings() {
  static const std::vector<Option> kSettings = {
      {"io_engine", {"\"auto\"", "\"threads\""}},
      {"direct", {"\"auto\"", "false"}},  // true where the directory can
      {"verify_reads", {"true", "false"}},
      {"tile_elements", {"16384", "65536", "262144"}},
      {"tier", {"ring", "some", "all"}},
      {"directories", {"1", "2", "3"}},
  };
  return kSettings;
}

using Choice = std::vector<std::size_t>;  // an index of a value for each setting

std::vector<Choice> every_choice() {
  std::vector<Choice> all = {{}};
  for (const Option& setting : settings()) {
    std::vector<Choice> longer;
    for (const Choice& choice : all) {
      for (std::size_t value = 0; value < setting.values.size(); ++value) {
        longer.push_back(choice);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

using Pair = std::array<std::size_t, 4>;  // setting, value, later setting, its value

std::set<Pair> pairs_of(const Choice& choice) {
  std::set<Pair> pairs;
  for (std::size_t a = 0; a < choice.size(); ++a) {
    for (std::size_t b = a + 1; b < choice.size(); ++b) pairs.insert({a, choice[a], b, choice[b]});
  }
  return pairs;
}

// Of all choices the one with the most pairs that are not there yet, until none is missing.
std::vector<Choice> covering_choices() {
  const std::vector<Choice> all = every_choice();
  std::set<Pair> missing;
  for (const Choice& choice : all) missing.merge(pairs_of(choice));
  std::vector<Choice> chosen;
  while (!missing.empty()) {
    const Choice* best = nullptr;
    std::size_t most = 0;
    for (const Choice& choice : all) {
      std::size_t gain = 0;
      for (const Pair& pair : pairs_of(choice)) gain += missing.count(pair);
      if (gain > most) best = &choice, most = gain;
    }
    chosen.push_back(*best);
    for (const Pair& pair : pairs_of(*best)) missing.erase(pair);
  }
  return chosen;
}

std::string value_of(const Choice& choice, const std::string& name) {
  for (std::size_t i = 0; i < choice.size(); ++i) {
    if (settings()[i].name == name) return settings()[i].values[choice[i]];
  }
  return "";
}

// In the order of settings(): auto_false_true_65536_some_2.
std::string name_of(const Choice& choice) {
  std::string text;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    text += std::string(i == 0 ? "" : "_") + settings()[i].values[choice[i]];
  }
  std::erase(text, '"');
  return text;
}

class Settings : public ::testing::TestWithParam<Choice> {};

TEST_P(Settings, B16_do_not_change_a_bit) {
  const Choice& choice = GetParam();
  const std::string tier = value_of(choice, "tier");
  const std::string tile = value_of(choice, "tile_elements");
  std::vector<std::unique_ptr<TemporaryDirectory>> directories;
  std::string scratch;
  for (int i = 0; i < std::stoi(value_of(choice, "directories")); ++i) {
    directories.push_back(std::make_unique<TemporaryDirectory>());
    scratch += (i == 0 ? "[\"" : ", \"") + directories.back()->path() + "\"";
  }
  std::string options = "\"update_threads\": 2, \"bucket_elements\": 600000";
  for (const char* name : {"io_engine", "direct", "verify_reads", "tile_elements"}) {
    options += std::string(", \"") + name + "\": " + value_of(choice, name);
  }
  const std::uint64_t place = std::stoull(tile) * 12;
  const std::uint64_t memory = tier == "ring"   ? 4 * place
                               : tier == "some" ? 35 * kMebibyte
                                                : 64 * kMebibyte;
  options += ", \"host_memory_bytes\": " + std::to_string(memory);
  Job job(scratch + "]", options);
  Training training(job, "rank00000/opt0_0",
                    {{"a", 1'100'000, 0, 0, MILLPOND_DTYPE_BF16, MILLPOND_DTYPE_BF16},
                     {"b", 900'001, 2, 1, MILLPOND_DTYPE_FP16, MILLPOND_DTYPE_FP32, true},
                     {"c", 4099, 3, 1},
                     {"n", 500'000, 0, 2, MILLPOND_DTYPE_FP32},
                     {"d", 600'000, 2, 3}});
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  const v1::Plan& plan = training.report.plan();
  EXPECT_EQ(plan.directories_size(), static_cast<int>(directories.size()));
  EXPECT_EQ(plan.tier_tiles() == 0, tier == "ring");
  EXPECT_EQ(plan.tier_tiles() == plan.tiles(), tier == "all");
  training.train(1, 4);
  EXPECT_EQ(training.models_differ() + training.state_differs(), "");
}

std::vector<Choice> choices_to_run() {
  if (in_campaign()) return every_choice();
  std::vector<Choice> chosen = covering_choices();
  if (kSanitized) chosen.resize(3);
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Pairs, Settings, ::testing::ValuesIn(choices_to_run()),
                         [](const auto& info) { return name_of(info.param); });

TEST(SettingsOf, are_all_met_in_pairs) {
  const std::vector<Choice> chosen = covering_choices();
  for (std::size_t a = 0; a < settings().size(); ++a) {
    for (std::size_t b = a + 1; b < settings().size(); ++b) {
      for (std::size_t x = 0; x < settings()[a].values.size(); ++x) {
        for (std::size_t y = 0; y < settings()[b].values.size(); ++y) {
          EXPECT_TRUE(std::any_of(chosen.begin(), chosen.end(),
                                  [&](const Choice& c) { return c[a] == x && c[b] == y; }))
              << settings()[a].values[x] << " with " << settings()[b].values[y];
        }
      }
    }
  }
  EXPECT_LE(chosen.size(), 16u) << "pairs need no more";
}

// A dense and an expert optimizer in one runtime share the tier: each step moves what the formula
// says for its store, whatever the order of the host's steps.
TEST(SettingsOf, two_stores_through_one_tier_move_what_the_formula_says_for_the_sum) {
  constexpr std::uint64_t kTile = 1 << 18;
  constexpr std::uint64_t kTileBytes = kTile * 12;  // 3 MiB: the ring has 10 places
  constexpr std::uint64_t kDense = 12, kExpert = 5, kPlaces = 13;
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": " + std::to_string(kTile) +
                              ", \"host_memory_bytes\": " + std::to_string(kPlaces * kTileBytes));
  Training dense(job, "rank00000/opt0_0", {{"dense", kDense * kTile, 0, 0}}, 1);
  Training expert(job, "rank00000/opt0_1", {{"expert", kExpert * kTile, 2, 0}}, 2);
  Status status;
  ASSERT_EQ(dense.bind(&status), MILLPOND_OK) << status.text();
  ASSERT_EQ(expert.bind(&status), MILLPOND_OK) << status.text();
  millpond_runtime_figures runtime{};
  runtime.header = {sizeof(runtime), MILLPOND_TYPE_RUNTIME_FIGURES};
  ASSERT_EQ(reports().runtime(job.runtime, &runtime, &status), MILLPOND_OK) << status.text();
  ASSERT_EQ(runtime.host_places, kPlaces);
  const std::uint64_t kept = kPlaces - runtime.ring_places;
  ASSERT_GT(kept, 0u);
  ASSERT_LT(kept, kDense);
  std::uint64_t read = 0, written = 0, steps = 0;
  const auto step = [&](Training& store, std::uint64_t number) {
    Training::Step made = store.make_step(number);
    made.found_inf = made.has_grad[0] = 0;
    made.has_grad[0] = 1;
    made.pointers[0] = made.grads[0].data();
    ASSERT_EQ(store.step(made, &status), MILLPOND_OK) << status.text();
    store.resident_step(made);
    millpond_step_figures figures{};
    figures.header = {sizeof(figures), MILLPOND_TYPE_STEP_FIGURES};
    ASSERT_EQ(reports().last_step(store.store, &figures, &status), MILLPOND_OK);
    if (number < 3) return;  // moments are made, then the tier fills
    read += figures.bytes_read;
    written += figures.bytes_written;
    ++steps;
  };
  for (std::uint64_t number = 1; number <= 5; ++number) {
    step(number == 4 ? expert : dense, number);
    step(number == 4 ? dense : expert, number);
    if (HasFatalFailure()) return;
  }
  ASSERT_EQ(steps, 6u);
  EXPECT_EQ(read, steps / 2 * (kDense + kExpert - kept) * kTileBytes);
  EXPECT_EQ(written, steps / 2 * (kDense + kExpert - kept) * kTileBytes);
  EXPECT_EQ(dense.models_differ() + dense.state_differs(), "");
  EXPECT_EQ(expert.models_differ() + expert.state_differs(), "");
}

}  // namespace
}  // namespace millpond::tests
