// The node's figures out of the ranks', worked out by hand.
#include "host_adapters/cli/ranks_report.h"

#include <gtest/gtest.h>

#include "host_adapters/cli/bench_ranks.h"

namespace millpond::cli {
namespace {

Json rank_of(std::vector<double> settled, std::uint64_t bytes, Json raw, const char* bound_by) {
  return {{"params", 100},
          {"plugin", "a plugin"},
          {"bytes_per_step_read", bytes},
          {"bytes_per_step_written", bytes},
          {"settled_s", settled},
          {"state_bytes", 1200},
          {"tier_bytes", 600},
          {"raw_mixed_list", raw},
          {"raw_mixed_bytes_per_s", raw.at(0)},
          {"bound_by", bound_by},
          {"busy_s", {{"fetch", 1.5}, {"flush", 2.5}}}};
}

std::vector<Json> two_ranks() {
  return {rank_of({2, 4, 3}, 3'000'000'000, {4e9, 4e9, 4e9}, "fetch"),
          rank_of({4, 4, 5}, 1'000'000'000, {nullptr, nullptr, nullptr}, "flush")};
}

TEST(RanksReport, the_node_takes_as_long_as_its_last_rank) {
  const Json node = merge_ranks(two_ranks());
  EXPECT_EQ(node["ranks"], 2);
  EXPECT_EQ(node["params"], 200);
  EXPECT_EQ(node["bytes_per_step_read"], 4'000'000'000);
  EXPECT_EQ(node["state_bytes"], 2400);
  EXPECT_EQ(node["settled_s"], (std::vector<double>{4, 4, 5}));
  EXPECT_EQ(node["mean_s"], (std::vector<double>{3, 4, 4}));
  // 8 GB in 4, 4 and 5 s of 4 GB/s
  EXPECT_EQ(node["drive_efficiency_list"], (std::vector<double>{0.5, 0.5, 0.4}));
  EXPECT_EQ(node["drive_efficiency"], 0.5);
  // Rank 1 in the three steps: a third, nothing, a quarter.
  EXPECT_DOUBLE_EQ(node["lateness"][1].get<double>(), 0.25);
  EXPECT_DOUBLE_EQ(node["lateness"][0].get<double>(), -0.25);
  EXPECT_EQ(node["slowest_rank"], 1);
  EXPECT_EQ(node["bound_by"], "flush");
  EXPECT_EQ(node["bound_s"], 2.5);
}

TEST(RanksReport, the_line_of_the_node_has_bytes_time_and_the_slowest) {
  const std::string table = ranks_table(merge_ranks(two_ranks()));
  EXPECT_NE(table.find("node: 4.00 GB read and 4.00 GB written in 4.00 s a step, 50.0 % of the "
                       "drive's 4.00 GB/s; slowest: rank 1, 25.0 % later than the mean, bound by "
                       "flush, which was busy for 2.50 s"),
            std::string::npos)
      << table;
}

TEST(RanksReport, nothing_moved_has_no_drive) {
  std::vector<Json> ranks = two_ranks();
  for (Json& rank : ranks) {
    rank["bytes_per_step_read"] = rank["bytes_per_step_written"] = 0;
    rank["raw_mixed_list"] = {nullptr, nullptr, nullptr};
    rank["raw_mixed_bytes_per_s"] = nullptr;
  }
  const Json node = merge_ranks(ranks);
  EXPECT_TRUE(node["drive_efficiency"].is_null());
  EXPECT_EQ(ranks_table(node).find("of the drive's"), std::string::npos);
}

TEST(RanksReport, buses_are_told_alone_and_at_once) {
  std::vector<Json> ranks = two_ranks();
  EXPECT_FALSE(merge_ranks(ranks).contains("bus_efficiency"));
  ranks[0]["cuda"] = {{"bus_both_bytes_per_s", 90e9},
                      {"bus_both_list", {70e9, 75e9, 60e9}},
                      {"times_bus_floor", 1.25}};
  EXPECT_FALSE(merge_ranks(ranks).contains("bus_efficiency")) << "one rank is on the CPU";
  ranks[1]["cuda"] = ranks[0]["cuda"];
  ranks[1]["cuda"]["times_bus_floor"] = 2.0;
  const Json node = merge_ranks(ranks);
  EXPECT_EQ(node["bus_alone_bytes_per_s"], (std::vector<double>{90e9, 90e9}));
  EXPECT_EQ(node["bus_at_once_bytes_per_s"], (std::vector<double>{70e9, 70e9}));
  EXPECT_EQ(node["bus_efficiency"], 0.5);
  EXPECT_NE(ranks_table(node).find("all at once 70.00 GB/s, 70.00 GB/s, of which the steps use "
                                   "50.0 % or more"),
            std::string::npos);
}

TEST(RanksArguments, parameters_are_divided_and_devices_counted) {
  BenchArguments all;
  all.params = 10;
  all.ranks = 4;
  all.device = "cuda";
  std::uint64_t params = 0;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const BenchArguments own = arguments_of_rank(all, rank);
    EXPECT_EQ(own.params, rank < 2 ? 3u : 2u);
    EXPECT_EQ(own.device, "cuda:" + std::to_string(rank));
    EXPECT_EQ(own.serial_steps, 0u);
    params += own.params;
  }
  EXPECT_EQ(params, 10u);
  all.device = "cuda:1";
  EXPECT_EQ(arguments_of_rank(all, 3).device, "cuda:1");
}

}  // namespace
}  // namespace millpond::cli
