// Each refusal code: what brings it about, alone.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "millpond/base.h"
#include "plugin/guard/codes.h"
#include "tests/guard/profiles.h"

namespace millpond::tests {
namespace {

struct Case {
  std::string code;
  std::string subject;
  std::string in_reason;
  std::function<void(v1::HostProfile&)> change;
  std::function<void(plugin::GuardContext&)> circumstances = [](plugin::GuardContext&) {};
};

v1::Shard& shard(v1::HostProfile& profile, int index) { return *profile.mutable_shards(index); }

void set_sizes(v1::Shard& shard, const std::vector<std::uint64_t>& global,
               const std::vector<std::uint64_t>& offset, const std::vector<std::uint64_t>& box) {
  shard.mutable_global_shape()->Assign(global.begin(), global.end());
  shard.mutable_box_offset()->Assign(offset.begin(), offset.end());
  shard.mutable_box_shape()->Assign(box.begin(), box.end());
}

void set_device(v1::HostProfile& profile, int type, int id) {
  for (v1::Shard& s : *profile.mutable_shards()) {
    s.set_device_type(type);
    s.set_device_id(id);
  }
}

constexpr std::uint64_t kTwo32 = 1ull << 32;

std::vector<Case> feature_cases() {
  return {
      {"feature_active", "optimizer.muon", "Muon",
       [](auto& p) { feature(p, "optimizer.muon").set_state(v1::STATE_ACTIVE); }},
      {"feature_unknown", "a.b", "does not know",
       [](auto& p) { feature(p, "a.b").set_state(v1::STATE_ACTIVE); }},
      {"feature_not_evaluated", "param.fp8", "did not say",
       [](auto& p) { remove_feature(p, "param.fp8"); }},
      {"feature_duplicate", "param.fp8", "more than once",
       [](auto& p) { *p.add_features() = feature(p, "param.fp8"); }},
      {"feature_state_unknown", "grad.clip_norm", "neither",
       [](auto& p) { feature(p, "grad.clip_norm").set_state(static_cast<v1::State>(3)); }},
      {"feature_state_unknown", "a.c", "neither",
       [](auto& p) { feature(p, "a.c").set_state(static_cast<v1::State>(-1)); }},
      {"feature_requires", "trainer.offload", "disk",
       [](auto& p) { feature(p, "trainer.offload").set_state(v1::STATE_ACTIVE); }},
  };
}

std::vector<Case> declaration_cases() {
  return {
      {"family_unspecified", "optimizer.family", "did not say",
       [](auto& p) { p.mutable_optimizer()->set_family(v1::FAMILY_UNSPECIFIED); }},
      {"family_unspecified", "optimizer.family", "did not say",
       [](auto& p) { p.clear_optimizer(); }},
      {"family_unsupported", "optimizer.family", "torch.optim.Lion",
       [](auto& p) {
         p.mutable_optimizer()->set_family(v1::FAMILY_OTHER);
         p.mutable_optimizer()->set_class_name("torch.optim.Lion");
       }},
      {"family_unsupported", "optimizer.family", "AdamW",
       [](auto& p) { p.mutable_optimizer()->set_family(static_cast<v1::Family>(3)); }},
      {"arithmetic_unknown", "arithmetic", "\"\"", [](auto& p) { p.clear_arithmetic(); }},
      {"arithmetic_unknown", "arithmetic", "torch_cpu_fused/99",
       [](auto& p) { p.set_arithmetic("torch_cpu_fused/99"); }},
      {"arithmetic_unsupported", "arithmetic", "CPU",
       [](auto& p) { p.set_arithmetic("torch_cuda_fused/2"); }},
      {"update_callback_missing", "arithmetic", "update", [](auto&) {},
       [](auto& c) { c.has_update = false; }},
      {"axis_invalid", "dp", "rank 2 of 2", [](auto& p) { p.mutable_topology(0)->set_rank(2); }},
      {"axis_invalid", "", "rank 1 of 2", [](auto& p) { p.mutable_topology(0)->clear_name(); }},
      {"axis_duplicate", "dp", "more than once",
       [](auto& p) { *p.add_topology() = p.topology(0); }},
      {"group_duplicate", "other", "id 7",
       [](auto& p) {
         v1::Group& group = *p.add_groups();
         group.set_id(7);
         group.set_key("other");
       }},
      {"group_counter_unknown", "wd_mult=1", "Group 7",
       [](auto& p) { p.mutable_groups(0)->set_counter(static_cast<v1::Counter>(2)); }},
  };
}

std::vector<Case> format_cases() {
  return {
      {"group_unknown", "norm", "group 8", [](auto& p) { shard(p, 3).set_group_id(8); }},
      {"storage_unspecified", "norm", "gradient",
       [](auto& p) { shard(p, 3).clear_grad_storage(); }},
      {"storage_unspecified", "norm", "parameter",
       [](auto& p) { shard(p, 3).clear_model_storage(); }},
      {"storage_unsupported", "norm", "quantized",
       [](auto& p) { shard(p, 3).set_model_storage(v1::STORAGE_QUANTIZED); }},
      {"storage_unsupported", "norm", "sparse",
       [](auto& p) { shard(p, 3).set_grad_storage(v1::STORAGE_SPARSE); }},
      {"storage_unsupported", "norm", "does not know",
       [](auto& p) { shard(p, 3).set_grad_storage(static_cast<v1::StorageClass>(260)); }},
      {"dtype_unspecified", "norm", "gradient", [](auto& p) { shard(p, 3).clear_grad_dtype(); }},
      {"dtype_unsupported", "norm", "fp8 (e4m3fn)",
       [](auto& p) { shard(p, 3).set_model_dtype(10 | 8 << 8 | 1 << 16); }},
      {"dtype_unsupported", "norm", "fp4 (e2m1fn)",
       [](auto& p) { shard(p, 3).set_model_dtype(17 | 4 << 8 | 1 << 16); }},
      {"dtype_unsupported", "norm", "fp64",
       [](auto& p) { shard(p, 3).set_grad_dtype(2 | 64 << 8 | 1 << 16); }},
      {"dtype_unsupported", "norm", "lanes",
       [](auto& p) { shard(p, 3).set_grad_dtype(2 | 32 << 8 | 2 << 16); }},
      {"kind_unspecified", "norm", "kind", [](auto& p) { shard(p, 3).clear_kind(); }},
      {"kind_unspecified", "norm", "kind",
       [](auto& p) { shard(p, 3).set_kind(static_cast<v1::ShardKind>(258)); }},
      {"kind_dtype_mismatch", "norm", "fp32",
       [](auto& p) { shard(p, 3).set_kind(v1::KIND_MAIN_AND_MOMENTS); }},
      {"kind_dtype_mismatch", "layer.1.weight", "fp16",
       [](auto& p) { shard(p, 2).set_kind(v1::KIND_MOMENTS_ONLY); }},
      {"device_unsupported", "norm", "type 3", [](auto& p) { shard(p, 3).set_device_type(3); }},
      {"device_unsupported", "norm", "type 0", [](auto& p) { shard(p, 3).clear_device_type(); }},
      {"device_unsupported", "norm", "id 1", [](auto& p) { shard(p, 3).set_device_id(1); }},
      {"device_unsupported", "norm", "id -1",
       [](auto& p) {
         set_device(p, 2, 0);
         shard(p, 3).set_device_id(-1);
         p.set_arithmetic("torch_cuda_fused/2");
       },
       [](auto& c) { c.cuda_available = true; }},
      {"cuda_unavailable", "shards", "CUDA", [](auto& p) { set_device(p, 2, 0); }},
  };
}

std::vector<Case> identity_cases() {
  return {
      {"shard_id_duplicate", "norm", "Shards 0 and 3", [](auto& p) { shard(p, 3).set_id(101); }},
      {"shard_key_invalid", "shards[3]", "empty key", [](auto& p) { shard(p, 3).clear_key(); }},
      {"shard_key_invalid", std::string("a\0b", 3), "control",
       [](auto& p) { shard(p, 3).set_key(std::string("a\0b", 3)); }},
      {"shape_rank_mismatch", "norm", "2 dimensions, but 2 box offsets and 1",
       [](auto& p) { shard(p, 3).mutable_box_shape()->RemoveLast(); }},
      {"shape_overflow", "norm", "2^63",
       [](auto& p) {
         set_sizes(shard(p, 3), {kTwo32, 0, kTwo32}, {0, 0, 0}, {1, 0, 1});
         shard(p, 3).set_flat_end(0);
       }},
      {"shape_overflow", "norm", "2^63",
       [](auto& p) {
         set_sizes(shard(p, 3), {kTwo32, kTwo32}, {0, 0}, {4, 6});
       }},
      {"shape_overflow", "norm", "2^63",
       [](auto& p) { set_sizes(shard(p, 3), {1ull << 63}, {0}, {24}); }},
      {"box_outside_shape", "norm", "offset 1, size 4 of 4 in dimension 0",
       [](auto& p) { shard(p, 3).set_box_offset(0, 1); }},
      {"box_outside_shape", "norm", "dimension 1",
       [](auto& p) { shard(p, 3).set_box_offset(1, UINT64_MAX - 5); }},
      {"range_outside_box", "norm", "0 to 25 in a box of 24",
       [](auto& p) { shard(p, 3).set_flat_end(25); }},
      {"range_outside_box", "norm", "9 to 8",
       [](auto& p) {
         shard(p, 3).set_flat_begin(9);
         shard(p, 3).set_flat_end(8);
       }},
      {"shape_conflict", "layer.0.weight", "Shard 0 (id 101) and Shard 1 (id 102)",
       [](auto& p) { shard(p, 1).set_global_shape(0, 5); }},
      {"shape_conflict", "layer.0.weight", "dtypes",
       [](auto& p) { shard(p, 1).set_model_dtype(MILLPOND_DTYPE_FP16); }},
      {"shard_duplicate", "layer.0.weight", "same range",
       [](auto& p) {
         shard(p, 1).set_flat_begin(0);
         shard(p, 1).set_flat_end(10);
       }},
      {"shard_overlap", "layer.0.weight", "share", [](auto& p) { shard(p, 1).set_flat_begin(9); }},
      {"shard_overlap", "layer.0.weight", "different boxes",
       [](auto& p) {
         set_sizes(shard(p, 1), {4, 6}, {1, 1}, {3, 5}), shard(p, 1).set_flat_end(15);
       }},
      {"device_mixed", "shards", "Shard 2",
       [](auto& p) {
         set_device(p, 2, 0);
         shard(p, 2).set_device_id(1);
         p.set_arithmetic("torch_cuda_fused/2");
       },
       [](auto& c) { c.cuda_available = true; }},
      {"too_many_boxes", "wide", "1025",
       [](auto& p) {
         v1::Shard one = p.shards(3);
         one.set_key("wide");
         one.set_flat_end(1);
         for (std::uint64_t i = 0; i < 1025; ++i) {
           set_sizes(one, {2000}, {i}, {1});
           one.set_id(1000 + i);
           *p.add_shards() = one;
         }
       }},
  };
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (auto part : {feature_cases(), declaration_cases(), format_cases(), identity_cases()})
    cases.insert(cases.end(), part.begin(), part.end());
  return cases;
}

// CUDA's arithmetic needs a CUDA build to be accepted; elsewhere its own refusal is added.
std::vector<plugin::Refusal> without_arithmetic(std::vector<plugin::Refusal> refusals,
                                                const std::string& wanted) {
  if (wanted != "arithmetic_unsupported")
    std::erase_if(refusals, [](const auto& r) { return r.code == "arithmetic_unsupported"; });
  return refusals;
}

TEST(RefusalCodes, the_good_profile_is_accepted) {
  const auto refusals = judge(good_profile());
  EXPECT_TRUE(refusals.empty()) << refusals[0].code << " " << refusals[0].reason;
}

TEST(RefusalCodes, each_cause_gives_its_code_and_no_other) {
  for (const Case& c : all_cases()) {
    v1::HostProfile profile = good_profile();
    c.change(profile);
    plugin::GuardContext context = good_context();
    c.circumstances(context);
    const auto refusals = without_arithmetic(judge(profile, context), c.code);
    ASSERT_EQ(refusals.size(), 1u) << c.code << ", " << c.in_reason;
    EXPECT_EQ(refusals[0].code, c.code);
    EXPECT_EQ(refusals[0].subject, c.subject) << c.code;
    EXPECT_NE(refusals[0].reason.find(c.in_reason), std::string::npos) << refusals[0].reason;
    EXPECT_GT(refusals[0].remedy.size(), 15u) << c.code;
  }
}

TEST(RefusalCodes, every_code_has_a_cause_here) {
  std::set<std::string> tested, published;
  for (const Case& c : all_cases()) tested.insert(c.code);
  for (const std::string_view code : plugin::codes::kAll) published.emplace(code);
  EXPECT_EQ(tested, published);
  EXPECT_EQ(plugin::codes::kAll.size(), published.size());
}

TEST(RefusalCodes, all_causes_together_give_all_codes) {
  v1::HostProfile profile = good_profile();
  std::multiset<std::string> expected;
  // Causes that do not hide one another.
  for (const Case& c : feature_cases()) c.change(profile), expected.insert(c.code);
  profile.clear_optimizer();
  expected.insert("family_unspecified");
  profile.clear_arithmetic();
  expected.insert("arithmetic_unknown");
  profile.mutable_topology(0)->set_rank(9);
  expected.insert("axis_invalid");
  shard(profile, 0).set_group_id(9);
  expected.insert("group_unknown");
  shard(profile, 1).set_flat_begin(9);
  expected.insert("shard_overlap");
  shard(profile, 2).clear_model_storage();
  expected.insert("storage_unspecified");
  shard(profile, 3).set_device_type(5);
  expected.insert("device_unsupported");
  std::multiset<std::string> got;
  for (const auto& refusal : judge(profile)) got.insert(refusal.code);
  EXPECT_EQ(got, expected);
}

TEST(RefusalCodes, a_flood_of_one_kind_is_summed_up) {
  v1::HostProfile profile = good_profile();
  v1::Shard one = profile.shards(3);
  one.clear_kind();
  for (std::uint64_t i = 0; i < 1500; ++i) {
    one.set_id(5000 + i);
    one.set_key("norm." + std::to_string(i));
    *profile.add_shards() = one;
  }
  const auto refusals = judge(profile);
  ASSERT_EQ(refusals.size(), 1001u);
  EXPECT_EQ(refusals.back().code, "kind_unspecified");
  EXPECT_NE(refusals.back().reason.find("500 more"), std::string::npos);
}

TEST(RefusalCodes, B41_empty_shards_are_fine) {
  v1::HostProfile profile = good_profile();
  for (v1::Shard& s : *profile.mutable_shards()) s.set_flat_end(s.flat_begin());
  set_sizes(shard(profile, 2), {0, kTwo32}, {0, 5}, {0, 7});
  set_sizes(shard(profile, 3), {}, {}, {});
  EXPECT_TRUE(judge(profile).empty());
  profile.clear_shards();
  EXPECT_TRUE(judge(profile).empty());
  profile.set_arithmetic("torch_cuda_fused/2");
  EXPECT_TRUE(judge(profile).empty()) << "a rank without shards has nothing to compute";
}

}  // namespace
}  // namespace millpond::tests
