// Numbers with units, both ways.
#include "host_adapters/command_line/quantity.h"

#include <gtest/gtest.h>

namespace millpond::cli {
namespace {

TEST(Quantity, counts) {
  EXPECT_EQ(parse_count("1000000"), 1000000u);
  EXPECT_EQ(parse_count("1e9"), 1000000000u);
  EXPECT_EQ(parse_count("600M"), 600000000u);
  EXPECT_EQ(parse_count("1.5B"), 1500000000u);
  EXPECT_EQ(parse_count("2g"), 2000000000u);
  EXPECT_EQ(parse_count("1K"), 1000u);
  for (const char* wrong :
       {"", "M", "0", "-1", "1.5", "600MM", "600Mi", "1e30", "nan", "inf", "6 M", "0x10"}) {
    EXPECT_EQ(parse_count(wrong), std::nullopt) << wrong;
  }
}

TEST(Quantity, bytes) {
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("8GiB"), 8ull << 30);
  EXPECT_EQ(parse_bytes("8Gi"), 8ull << 30);
  EXPECT_EQ(parse_bytes("1.5GB"), 1500000000u);
  EXPECT_EQ(parse_bytes("500M"), 500000000u);
  EXPECT_EQ(parse_bytes("1KiB"), 1024u);
  EXPECT_EQ(parse_bytes("2TB"), 2000000000000u);
  EXPECT_EQ(parse_bytes("7B"), 7u);
  for (const char* wrong : {"", "GiB", "-1GiB", "1.5", "8GiBB", "8xB", "8Gx", "0"}) {
    EXPECT_EQ(parse_bytes(wrong), std::nullopt) << wrong;
  }
}

TEST(Quantity, shown_with_units) {
  EXPECT_EQ(show_bytes(12e9), "12.00 GB");
  EXPECT_EQ(show_bytes(12.5e6), "12.5 MB");
  EXPECT_EQ(show_bytes(4096), "4.1 kB");
  EXPECT_EQ(show_bytes(0), "0 B");
  EXPECT_EQ(show_rate(1.31e9), "1.31 GB/s");
  EXPECT_EQ(show_seconds(9.634), "9.63 s");
  EXPECT_EQ(show_seconds(0.0851), "85.1 ms");
  EXPECT_EQ(show_seconds(42e-6), "42 us");
  EXPECT_EQ(show_count(1000000000), "1000 M");
  EXPECT_EQ(show_count(999), "999");
}

}  // namespace
}  // namespace millpond::cli
