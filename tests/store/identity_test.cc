// Streamed equals resident, bit by bit, whatever the layout, the memory and the threads.
#include <gtest/gtest.h>

#include "tests/store/training.h"

namespace millpond::tests {
namespace {

struct Setting {
  const char* name;
  std::uint64_t tile;   // elements
  std::uint64_t block;  // 0: the default
  std::uint32_t buckets;
  std::uint32_t threads;
  std::uint32_t places;  // tiles that host memory has room for; 0: all
  const char* engine;
  v1::Counter counter;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

// Sizes around the tile, empty shards, every dtype of model and gradient, two groups and a third
// that maximizes; spread over the host's buckets.
std::vector<Parameter> parameters_for(std::uint64_t tile, std::uint32_t buckets) {
  const millpond_dtype models[] = {MILLPOND_DTYPE_BF16, MILLPOND_DTYPE_FP16, MILLPOND_DTYPE_FP32};
  const millpond_dtype grads[] = {MILLPOND_DTYPE_FP32, MILLPOND_DTYPE_BF16, MILLPOND_DTYPE_FP16};
  std::vector<std::uint64_t> sizes{0, 5, 300, 0, 257, 4099, 1, 0};
  if (tile <= 16384) {
    for (const std::uint64_t size : {tile - 1, tile, tile + 1}) sizes.push_back(size);
    if (tile <= 4096) sizes.push_back(10 * tile);
  }
  std::vector<Parameter> parameters;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Parameter parameter;
    parameter.key = "p" + std::to_string(i);
    parameter.numel = sizes[i];
    parameter.group = i % 4 == 1 ? 2 : i % 4 == 2 ? 3 : 0;
    parameter.host_bucket = i * buckets / sizes.size();
    // The kind of shards changes where a bucket of the host does, or every bucket would be cut.
    parameter.model = models[buckets >= 3 ? parameter.host_bucket % 3 : (i * 3 / sizes.size()) % 3];
    parameter.grad = grads[i % 3];
    parameter.given_main = i % 5 == 4 && parameter.model != MILLPOND_DTYPE_FP32;
    parameters.push_back(parameter);
  }
  return parameters;
}

class Identity : public ::testing::TestWithParam<Setting> {};

TEST_P(Identity, B03_B16_B17_B21_B41_R05_200_steps) {
  const Setting& setting = GetParam();
  TemporaryDirectory scratch;
  std::string options = "\"tile_elements\": " + std::to_string(setting.tile) +
                        ", \"update_threads\": " + std::to_string(setting.threads) +
                        ", \"io_engine\": \"" + setting.engine + "\"";
  if (setting.block != 0) options += ", \"block_elements\": " + std::to_string(setting.block);
  if (setting.places != 0) {
    options += ", \"host_memory_bytes\": " + std::to_string(setting.places * setting.tile * 12);
  }
  Job job(scratch.path(), options);
  Training training(job, "rank00000/opt0_0", parameters_for(setting.tile, setting.buckets), 1,
                    setting.counter);
  Status status;
  ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
  ASSERT_TRUE(training.report.accepted());
  EXPECT_GE(training.report.plan().buckets(), setting.buckets == 7 ? 5u : setting.buckets);
  EXPECT_EQ(training.state_differs(), "") << "after the bind";
  training.train(1, 1);
  EXPECT_EQ(training.models_differ(), "") << "after the first step";
  EXPECT_EQ(training.state_differs(), "") << "after the first step";
  training.train(2, 110);
  EXPECT_EQ(training.models_differ(), "");
  training.train(111, 200);
  EXPECT_EQ(training.models_differ(), "");
  EXPECT_EQ(training.state_differs(), "");
}

constexpr v1::Counter kParameter = v1::COUNTER_PER_PARAMETER;
constexpr v1::Counter kGroup = v1::COUNTER_PER_GROUP;

INSTANTIATE_TEST_SUITE_P(
    Pairs, Identity,
    ::testing::Values(Setting{"tile4Ki_1bucket", 4096, 0, 1, 1, 4, "auto", kParameter},
                      Setting{"tile4Ki_7buckets", 4096, 0, 7, 2, 6, "threads", kGroup},
                      Setting{"tile16Ki_block4Ki_2buckets", 16384, 4096, 2, 3, 2, "auto", kGroup},
                      Setting{"tile64Ki_3buckets", 65536, 16384, 3, 4, 0, "auto", kParameter},
                      Setting{"tile1Mi_2buckets", 1 << 20, 0, 2, 2, 2, "threads", kParameter},
                      Setting{"tile16Mi_7buckets", 16 << 20, 1 << 18, 7, 1, 0, "auto", kParameter}),
    [](const auto& info) { return info.param.name; });

// The same parameters in another order and other buckets end with the same bytes.
TEST(IdentityOf, B17_neighbours_do_not_matter) {
  TemporaryDirectory scratch;
  Job job(scratch.path(), "\"tile_elements\": 4096, \"bucket_elements\": 5000");
  std::vector<Parameter> one = parameters_for(4096, 3);
  Training many(job, "many", one);
  Status status;
  ASSERT_EQ(many.bind(&status), MILLPOND_OK) << status.text();
  EXPECT_GE(many.report.plan().buckets(), 3u);
  many.train(1, 30);
  EXPECT_EQ(many.models_differ(), "");
  EXPECT_EQ(many.state_differs(), "");
}

}  // namespace
}  // namespace millpond::tests
