// Random profiles, whole and damaged: never a crash, every refusal well-formed, none by accident.
#include <gtest/gtest.h>

#include <algorithm>

#include "plugin/guard/codes.h"
#include "tests/guard/profiles.h"
#include "tests/guard/random_messages.h"

namespace millpond::tests {
namespace {

TEST(RandomProfile, is_judged_with_well_formed_refusals_that_travel) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) {
    v1::HostProfile profile;
    fill_at_random(profile, random);
    plugin::GuardContext context;
    context.has_update = random() % 2 == 0;
    context.cuda_available = random() % 2 == 0;
    const auto refusals = judge(profile, context);
    ASSERT_FALSE(refusals.empty()) << "features are never all evaluated by chance";
    for (const auto& refusal : refusals) {
      const auto& all = plugin::codes::kAll;
      ASSERT_NE(std::find(all.begin(), all.end(), refusal.code), all.end()) << refusal.code;
      ASSERT_FALSE(refusal.reason.empty());
      ASSERT_EQ(refusal.remedy.back(), '.');
      ASSERT_EQ(refusal.reason.find("{}"), std::string::npos);
    }
    v1::BindReport report;
    ASSERT_TRUE(report.ParseFromString(plugin::write_report(refusals, nullptr)));
    ASSERT_EQ(report.refusals_size(), static_cast<int>(refusals.size()));
    ASSERT_FALSE(report.accepted());
  }
}

// Whatever one field of the accepted profile is replaced by, the guard refuses it or the profile
// still has the properties that the store builds on.
TEST(RandomProfile, what_is_accepted_is_sound) {
  std::mt19937_64 random(6);
  int accepted = 0;
  for (int i = 0; i < 5000; ++i) {
    v1::HostProfile profile = good_profile();
    v1::Shard noise;
    fill_at_random(noise, random);
    v1::Shard& target = *profile.mutable_shards(static_cast<int>(random() % 4));
    const auto* descriptor = noise.GetDescriptor();
    const auto* field = descriptor->field(static_cast<int>(random() % 16));
    const auto& reflection = *noise.GetReflection();
    v1::Shard rest = target;
    rest.GetReflection()->ClearField(&rest, field);
    for (int f = 0; f < descriptor->field_count(); ++f)
      if (descriptor->field(f) != field) reflection.ClearField(&noise, descriptor->field(f));
    rest.MergeFrom(noise);
    target = rest;
    if (!judge(profile).empty()) continue;
    ++accepted;
    for (const v1::Shard& s : profile.shards()) {
      EXPECT_EQ(s.device_type(), 1);
      EXPECT_EQ(s.model_storage(), v1::STORAGE_DENSE);
      EXPECT_EQ(s.grad_storage(), v1::STORAGE_DENSE);
      EXPECT_EQ(s.group_id(), 7u);
      EXPECT_LE(s.flat_begin(), s.flat_end());
      EXPECT_LE(s.flat_end(), 24u);
      EXPECT_FALSE(s.key().empty());
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace millpond::tests
