// What measurements come to: medians and ratios, worked out by hand.
#include "host_adapters/cli/bench_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millpond::cli {
namespace {

Pair pair_of(double settled_s, std::uint64_t bytes, double raw) {
  Pair pair;
  pair.step_s = settled_s - 0.25;
  pair.settled_s = settled_s;
  pair.raw_mixed_bytes_per_s = raw;
  pair.update_bytes_per_s = 10e9;
  pair.update_ceiling_bytes_per_s = 20e9;
  pair.figures.bytes_read = bytes / 2;
  pair.figures.bytes_written = bytes / 2;
  pair.figures.bound_by = MILLPOND_STAGE_FLUSH;
  return pair;
}

BenchResult example() {
  BenchResult result;
  result.state_bytes = 4'000'000'000;
  result.update_bytes = 10'000'000'000;
  result.raw_read_bytes_per_s = 1e9;
  result.raw_write_bytes_per_s = 2e9;
  // 0.5, 1 and 0.75 of the drive's rate
  result.pairs = {pair_of(4, 4'000'000'000, 2e9), pair_of(2, 4'000'000'000, 2e9),
                  pair_of(4, 6'000'000'000, 2e9)};
  SerialStep serial;
  serial.seconds = 8;
  serial.read_s = 4;
  serial.update_s = 2;
  serial.write_s = 2;
  serial.bytes_read = serial.bytes_written = 4'000'000'000;
  result.serial = {serial};
  return result;
}

TEST(Median, of_odd_even_and_none) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({}), 0);
}

TEST(BenchResult, ratios_are_medians_of_pairs) {
  const BenchResult result = example();
  EXPECT_DOUBLE_EQ(result.median_step_s(), 4);
  EXPECT_DOUBLE_EQ(*result.drive_efficiency(), 0.75);
  EXPECT_DOUBLE_EQ(*result.raw_mixed_bytes_per_s(), 2e9);
  EXPECT_DOUBLE_EQ(*result.speedup(), 2);
  EXPECT_DOUBLE_EQ(result.update_efficiency(), 0.25);
  // (4 / 1 + 4 / 2 + 1) seconds against max(bytes / 2 GB/s, 1 s) of the middle pair.
  const double moved = static_cast<double>(result.middle().moved());
  EXPECT_DOUBLE_EQ(*result.predicted_speedup(), 7 / (moved / 2e9));
}

TEST(BenchResult, nothing_moved_and_nothing_compared_is_null) {
  BenchResult result = example();
  result.serial.clear();
  for (Pair& pair : result.pairs) {
    pair.raw_mixed_bytes_per_s = 0;
    pair.figures.bytes_read = pair.figures.bytes_written = 0;
  }
  const auto document = nlohmann::json::parse(bench_json(BenchArguments(), result));
  for (const char* key : {"raw_mixed_bytes_per_s", "serial_step_s", "drive_efficiency", "serial",
                          "speedup", "predicted_speedup", "rss_peak_bytes"}) {
    ASSERT_TRUE(document.contains(key)) << key;
    EXPECT_TRUE(document[key].is_null()) << key;
  }
  const std::string table = bench_table(BenchArguments(), result);
  EXPECT_EQ(table.find("of the drive's ceiling"), std::string::npos) << table;
  EXPECT_EQ(table.find("Serial store"), std::string::npos) << table;
}

BenchResult on_a_device() {
  BenchResult result = example();
  for (Pair& pair : result.pairs) pair.bus_bytes_per_s = 40e9;
  result.main_bytes = 2'000'000'000;
  result.runtime_figures.host_bytes = 1'000'000'000;
  CudaFigures& cuda = result.cuda.emplace();
  cuda.device = "some device";
  cuda.bus_down_bytes_per_s = 50e9;
  cuda.small_shards = 10'000;
  cuda.small_bytes_per_s = 3e9;
  cuda.small_ceiling_bytes_per_s = 4e9;
  cuda.staging_bytes = 150'000'000;
  cuda.bind_s = 2.18;
  cuda.touch_s = 0.1;
  cuda.register_s = 0.2;
  return result;
}

TEST(BenchResult, a_device_has_floors) {
  const BenchResult result = on_a_device();
  // 4 GB each way at 20 GB/s; the drive moves what it must in 2, 2 and 3 s, the update takes 0.5 s.
  EXPECT_DOUBLE_EQ(result.bus_floor_s(result.pairs[0]), 0.2);
  EXPECT_DOUBLE_EQ(result.times_bus_floor(), 20);
  EXPECT_DOUBLE_EQ(result.floor_s(result.pairs[2]), 3);
  EXPECT_DOUBLE_EQ(result.times_floor(), 4.0 / 3);
  // A quarter of the mains stays in the tier, the others are written at 2 GB/s.
  EXPECT_DOUBLE_EQ(result.start_floor_s(), 0.1 + 0.2 + 2 / 50.0 + 1.5 / 2);
}

TEST(BenchReport, a_device_has_rows_and_an_object_of_its_own) {
  const std::string table = bench_table(BenchArguments(), on_a_device());
  for (const char* part : {"some device", "75.0 % of their bytes", "150.0 MB", "20.00 x", "1.33 x",
                           "2.00 x of what its bytes need: 1.09 s"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
  const auto with = nlohmann::json::parse(bench_json(BenchArguments(), on_a_device()));
  EXPECT_DOUBLE_EQ(with["cuda"]["times_floor"], 4.0 / 3);
  EXPECT_EQ(with["cuda"]["bus_both_list"].size(), 3u);
  const auto without = nlohmann::json::parse(bench_json(BenchArguments(), example()));
  EXPECT_TRUE(without["cuda"].is_null());
}

TEST(BenchReport, the_table_has_the_figures_with_units) {
  const std::string table = bench_table(BenchArguments(), example());
  for (const char* part : {"4.00 s", "75.0 %", "2.00 x", "1.00 GB/s", "10.00 GB/s",
                           "the update reaches 50.0 %", "state of 4.00 GB"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
}

}  // namespace
}  // namespace millpond::cli
