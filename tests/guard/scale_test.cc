// Reading and judging stay n log n: 100,000 shards in well under a second.
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>
#include <functional>

#include "tests/guard/profiles.h"
#include "tests/sanitized.h"

namespace millpond::tests {
namespace {

// A sanitized build is held to the order of growth only: something quadratic takes minutes.
constexpr double kLimit = kSanitized ? 20 : 1.0;

double seconds_of(const v1::HostProfile& profile, std::size_t refusals) {
  const std::string bytes = profile.SerializeAsString();
  const std::clock_t begin = std::clock();  // processor time: other programs do not count
  const plugin::Profile read = plugin::read_profile(bytes.data(), bytes.size());
  const std::size_t got = plugin::judge(read, good_context()).size();
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_EQ(got, refusals);
  std::printf("%d shards, %zu bytes: %.3f s\n", profile.shards_size(), bytes.size(), seconds);
  return seconds;
}

v1::HostProfile many_shards(const std::function<void(v1::Shard&, std::uint64_t)>& change) {
  v1::HostProfile profile = good_profile();
  const v1::Shard model = profile.shards(3);
  profile.clear_shards();
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    v1::Shard& s = *profile.add_shards();
    s = model;
    s.set_id(i);
    change(s, i);
  }
  return profile;
}

TEST(Scale, a_hundred_thousand_parameters) {
  const auto profile = many_shards([](v1::Shard& s, std::uint64_t i) {
    s.set_key("module.decoder.layers." + std::to_string(i * 7919 % 100'000) +
              ".mlp.experts.linear_fc1.weight");
  });
  EXPECT_LT(seconds_of(profile, 0), kLimit);
}

TEST(Scale, a_hundred_thousand_ranges_of_one_parameter) {
  const auto profile = many_shards([](v1::Shard& s, std::uint64_t i) {
    const std::uint64_t place = i * 7919 % 100'000;
    s.set_global_shape(0, 100'000);
    s.set_box_shape(0, 100'000);
    s.set_flat_begin(place * 6);
    s.set_flat_end(place * 6 + 6);
  });
  EXPECT_LT(seconds_of(profile, 0), kLimit);
}

TEST(Scale, a_hundred_thousand_boxes_that_all_meet) {
  const auto profile = many_shards([](v1::Shard& s, std::uint64_t i) {
    s.set_key("p" + std::to_string(i / 1000));
    s.set_global_shape(0, 4000);
    s.set_global_shape(1, 1);
    s.set_box_offset(0, i % 1000);
    s.set_box_shape(0, 2000);
    s.set_box_shape(1, 1);
  });
  EXPECT_LT(seconds_of(profile, 1001), kLimit);
}

TEST(Scale, a_hundred_thousand_shards_that_are_all_wrong) {
  const auto profile = many_shards([](v1::Shard& s, std::uint64_t) {
    s.Clear();
    s.set_flat_begin(1);
  });
  // Eight codes: key, group, storage, dtype, kind, range, device, id.
  EXPECT_LT(seconds_of(profile, 8 * 1001), kLimit);
}

}  // namespace
}  // namespace millpond::tests
