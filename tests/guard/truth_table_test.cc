// Every feature active, inactive and absent, alone and in pairs, against verdicts.txt.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "millpond/features.h"
#include "plugin/guard/rules.h"
#include "tests/guard/profiles.h"

namespace millpond::tests {
namespace {

enum class State { kAbsent, kInactive, kActive };
constexpr State kStates[] = {State::kAbsent, State::kInactive, State::kActive};

struct Row {
  bool refused_absent = false;
  bool refused_active = false;
  std::string needs;
};

std::map<std::string, Row> read_verdicts() {
  std::map<std::string, Row> rows;
  std::ifstream file(MILLPOND_VERDICTS);
  EXPECT_TRUE(file.is_open()) << MILLPOND_VERDICTS;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string name, absent, active;
    Row row;
    words >> name >> absent >> active;
    EXPECT_TRUE(absent == "refused" || absent == "fine") << line;
    EXPECT_TRUE(active == "refused" || active == "fine" || active == "needs") << line;
    row.refused_absent = absent == "refused";
    row.refused_active = active == "refused";
    if (active == "needs") {
      EXPECT_TRUE(words >> row.needs) << line;
    }
    EXPECT_TRUE(rows.emplace(name, row).second) << line;
  }
  return rows;
}

std::string in_words(const Row& row) {
  if (row.refused_active) return "refused";
  return row.needs.empty() ? "allowed" : "refused unless " + row.needs + " is active";
}

class TruthTable : public testing::Test {
 protected:
  // Features that `states` does not name are inactive.
  std::multiset<CodeAndSubject> expected(const std::map<std::string, State>& states) const {
    std::multiset<CodeAndSubject> codes;
    for (const auto& [name, state] : states) {
      const Row& row = rows_.at(name);
      if (state == State::kAbsent && row.refused_absent)
        codes.emplace("feature_not_evaluated", name);
      if (state != State::kActive) continue;
      if (row.refused_active) codes.emplace("feature_active", name);
      if (row.needs.empty()) continue;
      const auto other = states.find(row.needs);
      if (other == states.end() || other->second != State::kActive)
        codes.emplace("feature_requires", name);
    }
    return codes;
  }

  void compare(const std::map<std::string, State>& states) {
    v1::HostProfile profile = base_;
    for (const auto& [name, state] : states) {
      if (state == State::kAbsent) {
        // Both ways to say nothing of a feature.
        if (unspecified_ = !unspecified_; unspecified_) {
          feature(profile, name).set_state(v1::STATE_UNSPECIFIED);
        } else {
          remove_feature(profile, name);
        }
      } else {
        feature(profile, name)
            .set_state(state == State::kActive ? v1::STATE_ACTIVE : v1::STATE_INACTIVE);
      }
    }
    const std::vector<plugin::Refusal> refusals = judge(profile);
    ASSERT_EQ(codes_of(refusals), expected(states)) << profile.ShortDebugString();
    for (const plugin::Refusal& refusal : refusals) {
      EXPECT_GT(refusal.reason.size(), 20u) << refusal.subject;
      EXPECT_GT(refusal.remedy.size(), 15u) << refusal.subject;
    }
  }

  const std::map<std::string, Row> rows_ = read_verdicts();
  const v1::HostProfile base_ = good_profile();
  bool unspecified_ = false;
};

TEST_F(TruthTable, names_every_published_feature_and_no_other) {
  std::set<std::string> published, listed;
#define MILLPOND_NAME(since, must, name, meaning) published.insert(name);
  MILLPOND_FEATURES(MILLPOND_NAME)
#undef MILLPOND_NAME
  for (const auto& [name, row] : rows_) listed.insert(name);
  EXPECT_EQ(listed, published);
  EXPECT_GE(listed.size(), 28u);
}

TEST_F(TruthTable, holds_for_each_feature_alone) {
  for (const auto& [name, row] : rows_)
    for (const State state : kStates) compare({{name, state}});
}

TEST_F(TruthTable, B42_holds_for_features_in_pairs) {
  for (auto a = rows_.begin(); a != rows_.end(); ++a)
    for (auto b = std::next(a); b != rows_.end(); ++b)
      for (const State first : kStates)
        for (const State second : kStates) compare({{a->first, first}, {b->first, second}});
}

TEST_F(TruthTable, lists_all_refusals_when_everything_is_active) {
  std::map<std::string, State> states;
  for (const auto& [name, row] : rows_) states[name] = State::kActive;
  compare(states);
  for (auto& [name, state] : states) state = State::kAbsent;
  compare(states);
}

TEST_F(TruthTable, is_what_the_rules_say_in_words) {
  for (const plugin::FeatureRule& rule : plugin::feature_rules()) {
    const Row& row = rows_.at(std::string(rule.name));
    EXPECT_EQ(plugin::verdict_text(rule), in_words(row)) << rule.name;
    EXPECT_EQ(rule.must_evaluate, row.refused_absent) << rule.name;
  }
}

// abi/README.md's rows: | `name` | since | must be listed | active | meaning |
TEST_F(TruthTable, is_what_the_contract_page_tells_hosts) {
  std::ifstream page(MILLPOND_ABI_PAGE);
  ASSERT_TRUE(page.is_open()) << MILLPOND_ABI_PAGE;
  std::set<std::string> told;
  for (std::string line; std::getline(page, line);) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, '|');) {
      std::erase(cell, '`');
      const std::size_t begin = cell.find_first_not_of(' ');
      const std::size_t end = cell.find_last_not_of(' ');
      cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
    }
    if (cells.size() < 5 || !rows_.contains(cells[1])) continue;
    const Row& row_of_feature = rows_.at(cells[1]);
    told.insert(cells[1]);
    EXPECT_EQ(cells[3], row_of_feature.refused_absent ? "yes" : "no") << line;
    EXPECT_EQ(cells[4], in_words(row_of_feature)) << line;
  }
  EXPECT_EQ(told.size(), rows_.size());
}

TEST_F(TruthTable, refuses_unknown_features_only_when_active) {
  v1::HostProfile profile = base_;
  feature(profile, "optimizer.from_the_future").set_state(v1::STATE_INACTIVE);
  EXPECT_TRUE(judge(profile).empty());
  feature(profile, "optimizer.from_the_future").set_state(v1::STATE_UNSPECIFIED);
  EXPECT_TRUE(judge(profile).empty());
  feature(profile, "optimizer.from_the_future").set_state(v1::STATE_ACTIVE);
  EXPECT_EQ(codes_of(judge(profile)),
            (std::multiset<CodeAndSubject>{{"feature_unknown", "optimizer.from_the_future"}}));
}

TEST_F(TruthTable, reasons_repeat_what_the_host_says) {
  v1::HostProfile profile = base_;
  feature(profile, "param.fp8").set_state(v1::STATE_ACTIVE);
  feature(profile, "param.fp8").set_detail("--fp8-param-gather");
  const auto refusals = judge(profile);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_NE(refusals[0].reason.find("--fp8-param-gather"), std::string::npos);
}

}  // namespace
}  // namespace millpond::tests
