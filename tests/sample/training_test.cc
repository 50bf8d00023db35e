// Whole runs in this process through the real plugin: bits that must agree, and bits that must not.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "host_adapters/sample/formats.h"
#include "host_adapters/sample/text.h"
#include "host_adapters/sample/trainer.h"
#include "millpond/error.hpp"
#include "tests/sample/sample_text.h"
#include "tests/sample/training_run.h"

namespace millpond::sample {
namespace {

struct Setting {
  const char* name;
  std::uint64_t tile, block, bucket, host_memory;
  std::size_t threads;
  std::size_t layers;
};

class Compare : public testing::TestWithParam<Setting> {};

TEST_P(Compare, B16_resident_and_streamed_agree_in_every_byte) {
  const TestDirectory directory;
  Arguments a = small_run(directory, Mode::kCompare);
  const Setting& setting = GetParam();
  a.tile_elements = setting.tile;
  a.block_elements = setting.block;
  a.bucket_elements = setting.bucket;
  a.host_memory_bytes = setting.host_memory;
  a.threads = setting.threads;
  a.shape.layers = setting.layers;
  const RunResult result = run(a);
  ASSERT_EQ(result.names.size(), 2U);
  EXPECT_EQ(result.costs[1].step_seconds.size(), a.steps);
  if (setting.host_memory != 0) {
    EXPECT_LE(result.costs[1].resident_bytes, setting.host_memory);
    // Mains only in the first step: a third of what the last one reads and writes.
    EXPECT_GT(result.costs[1].first.bytes_read, 0U);
    EXPECT_GT(result.costs[1].last.bytes_read, 2 * result.costs[1].first.bytes_read);
    EXPECT_GT(result.costs[1].last.bytes_written, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, Compare,
                         testing::Values(Setting{"ring_only", 4096, 4096, 0, 256 << 10, 2, 2},
                                         Setting{"all_in_memory", 4096, 4096, 0, 0, 2, 2},
                                         Setting{"one_big_tile", 1 << 20, 4096, 0, 0, 1, 2},
                                         Setting{"many_buckets", 4096, 4096, 8192, 256 << 10, 3, 3},
                                         Setting{"blocks_in_tiles", 16384, 4096, 20000, 1 << 20, 1,
                                                 4}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Training, threads_change_no_bit) {
  const TestDirectory directory;
  Arguments a = small_run(directory, Mode::kStreamed);
  const std::string two = run(a).digest;
  for (const std::size_t threads : {1, 4}) {
    a.threads = threads;
    EXPECT_EQ(run(a).digest, two) << threads;
  }
  a.mode = Mode::kResident;
  EXPECT_EQ(run(a).digest, two);
  a.seed = 2;
  EXPECT_NE(run(a).digest, two);
}

TEST(Training, unfit_arguments_are_refused) {
  const TestDirectory directory;
  Arguments a = small_run(directory, Mode::kStreamed);
  a.options = {"no_such_option=1"};
  EXPECT_THROW(run(a), Error);
  a.options.clear();
  a.plugin = directory.text();
  EXPECT_THROW(run(a), Error);
}

TEST(Training, gradients_that_are_not_finite_skip_the_step) {
  const TestDirectory directory;
  Arguments a = small_run(directory, Mode::kCompare);
  a.hyper.lr = 1e30;  // the first step blows the parameters up
  a.hyper.warmup = 0;
  a.steps = 4;
  const RunResult result = run(a);
  EXPECT_GE(result.skipped, 1U);
  EXPECT_EQ(result.costs[1].last.bytes_written, 0U);
}

// On real English: what Debian and its descendants keep in /usr/share/common-licenses. A text that
// the model learns by heart says nothing here, since gradients then fall below what 8 bits can
// follow.
TEST(Formats, stay_within_their_limits_of_fp32) {
  const TestDirectory directory;
  std::ofstream text(directory.text(), std::ios::binary);
  for (const char* name :
       {"GPL-1", "GPL-2", "GPL-3", "LGPL-2.1", "GFDL-1.2", "Artistic", "MPL-2.0"}) {
    std::ifstream licence(std::string("/usr/share/common-licenses/") + name, std::ios::binary);
    if (licence) text << licence.rdbuf();
  }
  text.close();
  if (std::filesystem::file_size(directory.text()) < 100'000) {
    GTEST_SKIP() << "no English text: /usr/share/common-licenses is not here";
  }
  Arguments a = small_run(directory, Mode::kFormats);
  a.shape = {8, 32, 128, 2};
  a.steps = 200;
  a.batch = 128;
  a.hyper = {};
  a.evaluation_bytes = 8192;
  Progress progress(true);
  processes::Meeting meeting(1, kSlotBytes, 60.0);
  const FormatTable table = try_formats(a, Place(a, meeting, 0), progress);
  EXPECT_TRUE(table.within_limits) << table.text;
  std::fputs(table.text.c_str(), stdout);
}

TEST(TextTest, batches_depend_on_seed_and_step_only) {
  const TestDirectory directory;
  const Text text(directory.text(), 4);
  Batch first, other;
  text.draw(1, 7, 64, &first);
  text.draw(1, 8, 64, &other);
  EXPECT_NE(first.contexts, other.contexts);
  text.draw(1, 7, 64, &other);
  EXPECT_EQ(first.contexts, other.contexts);
  EXPECT_EQ(first.targets, other.targets);
}

TEST(TextTest, bigram_of_a_known_text) {
  const TestDirectory directory;
  // After 'a' comes 'b' three times in four, else 'c'; after b and c always 'a'.
  std::string pattern;
  for (int i = 0; i < 400; ++i) pattern += "abababac";
  std::ofstream(directory.text(), std::ios::binary) << pattern;
  const Text text(directory.text(), 4);
  // Half of the places follow an 'a', each worth the entropy of (3/4, 1/4).
  const double expected = 0.5 * (0.75 * std::log2(4.0 / 3.0) + 0.25 * 2.0);
  EXPECT_NEAR(text.bigram_bits_per_byte(text.even_places(1 << 20)), expected, 2e-3);
}

}  // namespace
}  // namespace millpond::sample
