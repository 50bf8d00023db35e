// The region and how it is divided.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "millpond/base.h"
#include "millpond/error.hpp"
#include "plugin/pipeline/region.h"
#include "plugin/pipeline/tier_plan.h"
#include "tests/pipeline/model.h"

namespace millpond::plugin {
namespace {

std::uint64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::stoull(line.substr(6));
  }
  return 0;
}

// The mapping that holds an address: [begin, end) and its VmFlags. end 0: none.
struct Mapping {
  std::uint64_t begin = 0, end = 0;
  std::string flags;
};
Mapping mapping_of(const void* address) {
  const auto wanted = reinterpret_cast<std::uint64_t>(address);
  std::ifstream maps("/proc/self/smaps");
  Mapping found;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin <= wanted && wanted < end;
      if (inside) found = {begin, end, ""};
    } else if (inside && line.rfind("VmFlags:", 0) == 0) {
      found.flags = line.substr(8) + " ";
    }
  }
  return found;
}

TEST(Tier, the_region_is_exact_touched_private_and_gone_afterwards) {
  ThreadPool pool(2);
  Region region;
  const std::uint64_t bytes = (64 << 20) + 3 * 4096;
  const std::uint64_t before = resident_kib();
  region.map(bytes, pool);
  EXPECT_EQ(region.bytes(), bytes);
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(region.data()) % 4096, 0u);
  EXPECT_GE(resident_kib() + 1024, before + bytes / 1024);  // all of it is there already
  const Mapping mapping = mapping_of(region.data());
  EXPECT_EQ(mapping.end - mapping.begin, bytes);
  EXPECT_NE(mapping.flags.find(" dd "), std::string::npos) << mapping.flags;  // no core dumps
  EXPECT_NE(mapping.flags.find(" dc "), std::string::npos) << mapping.flags;  // not in children
  EXPECT_NE(mapping.flags.find(" hg "), std::string::npos) << mapping.flags;  // huge pages
  std::byte* const data = region.data();
  region.unmap();
  EXPECT_EQ(region.bytes(), 0u);
  EXPECT_EQ(mapping_of(data).end, 0u);
  EXPECT_LE(resident_kib(), before + 4096);
}

TEST(Tier, a_region_that_cannot_be_had_names_the_option) {
  ThreadPool pool(1);
  Region region;
  try {
    region.map(std::uint64_t{1} << 46, pool);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_MEMORY);
    EXPECT_EQ(error.field_name(), "options.host_memory_bytes");
  }
  EXPECT_EQ(region.bytes(), 0u);
}

TEST(Tier, suspend_gives_the_region_back_and_resume_takes_it_again) {
  const std::uint64_t tile = 3 * 4096 * 4;
  Rig rig(60 * tile);
  ModelStore store(small_plan(140), "dense");
  rig.plan({&store});
  rig.fill(store, 1, true);
  const std::uint64_t bytes = rig.pipeline->host_bytes();
  EXPECT_EQ(bytes, 60 * tile);
  const std::byte* const region = rig.watched->region;
  ASSERT_EQ(mapping_of(region).end - mapping_of(region).begin, bytes);
  rig.pipeline->suspend();
  EXPECT_EQ(rig.pipeline->host_bytes(), 0u);
  EXPECT_EQ(rig.watched->region_bytes, 0u);  // unregistered first
  EXPECT_EQ(mapping_of(region).end, 0u);
  rig.pipeline->resume();
  EXPECT_EQ(rig.pipeline->host_bytes(), bytes);
  EXPECT_EQ(rig.watched->region_bytes, bytes);
  rig.step(store, 2);
}

TEST(Tier, planning_while_suspended_takes_no_memory) {
  Rig rig(0);
  ModelStore one(small_plan(8), "one");
  ModelStore two(small_plan(8), "two");
  rig.plan({&one, &two});
  rig.fill(one);
  rig.fill(two);
  rig.pipeline->suspend();
  two.state.reset();
  rig.plan({&one});
  EXPECT_EQ(rig.pipeline->host_bytes(), 0u);
  rig.pipeline->resume();
  EXPECT_EQ(rig.pipeline->host_bytes(), 8 * rig.pipeline->place_bytes());
  rig.step(one, 2);
}

TEST(Tier, shares_are_proportional_within_one_and_sum_up) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::uint64_t> tiles(1 + random() % 6);
    for (auto& count : tiles) count = random() % 50;
    const std::uint64_t all = std::accumulate(tiles.begin(), tiles.end(), std::uint64_t{0});
    const std::uint64_t place = 4096 * (1 + random() % 9);
    const std::uint64_t fit = 2 + random() % 80;
    const std::uint64_t ring_places = random() % 12;
    const TierPlan plan =
        divide_tier(tiles, place, fit * place + random() % place, ring_places * place);
    ASSERT_EQ(plan.places, std::min(fit, all));
    std::uint64_t kept = 0;
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      kept += plan.kept[i];
      ASSERT_LE(plan.kept[i], tiles[i]);
    }
    ASSERT_EQ(kept + plan.ring, plan.places);
    if (fit >= all) {
      ASSERT_EQ(plan.kept, tiles);
      continue;
    }
    ASSERT_EQ(plan.ring, std::min(fit, std::max<std::uint64_t>(4, ring_places)));
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      const double exact =
          static_cast<double>(kept) * static_cast<double>(tiles[i]) / static_cast<double>(all);
      ASSERT_LT(std::abs(static_cast<double>(plan.kept[i]) - exact), 1.0);
    }
  }
}

TEST(Tier, less_than_two_places_is_an_error_with_both_figures) {
  const std::vector<std::uint64_t> tiles = {5};
  EXPECT_EQ(divide_tier(tiles, 8192, 2 * 8192, 0).places, 2u);
  try {
    divide_tier(tiles, 8192, 2 * 8192 - 1, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_MEMORY);
    EXPECT_EQ(error.field_name(), "options.host_memory_bytes");
    EXPECT_EQ(error.wanted(), 2 * 8192u);
    EXPECT_EQ(error.got(), 2 * 8192u - 1);
  }
  EXPECT_EQ(divide_tier(std::vector<std::uint64_t>{1}, 8192, 8192, 0).places, 1u);
}

TEST(Tier, a_refused_plan_changes_nothing) {
  Rig rig(4 * 3 * 4096 * 4);
  ModelStore store(small_plan(20), "dense");
  rig.plan({&store});
  rig.fill(store);
  ModelStore big(small_plan(4, false, kernels::Storage::kFp32, 4096 * 8), "big");
  EXPECT_THROW(rig.plan({&store, &big}), Error);
  rig.step(store, 2);
}

}  // namespace
}  // namespace millpond::plugin
