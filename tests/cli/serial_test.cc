// The serial store really keeps state in its files and really does AdamW.
#include "host_adapters/cli/serial.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "millpond/error.hpp"

namespace millpond::cli {
namespace {

class Directory {
 public:
  Directory() {
    std::string name = std::filesystem::temp_directory_path() / "millpond-serial-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

float value_at(const std::byte* memory, millpond_dtype dtype) {
  if (dtype == MILLPOND_DTYPE_FP32) {
    float value;
    std::memcpy(&value, memory, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, memory, 2);
  const std::uint32_t word = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}

struct Case {
  const char* parameters;
  const char* gradients;
  bool bf16_moments;
  double tolerance;  // relative to what the steps changed
};

class Serial : public ::testing::TestWithParam<Case> {};

TEST_P(Serial, does_adamw_bucket_by_bucket) {
  const Case& setting = GetParam();
  const Directory directory;
  constexpr std::uint64_t kParams = 10'007;
  const Tensors tensors(kParams, 4000, dtype_of(setting.parameters), dtype_of(setting.gradients));
  std::vector<double> p(kParams), m(kParams), v(kParams), begin(kParams);
  const std::uint64_t item = item_bytes(tensors.parameter_dtype());
  for (std::uint64_t i = 0; i < kParams; ++i) {
    begin[i] = p[i] = value_at(tensors.model_at(i), tensors.parameter_dtype());
  }
  SerialStore store({.directories = {directory.path()},
                     .bucket_elements = 3000,
                     .bf16_moments = setting.bf16_moments,
                     .threads = 2},
                    tensors);
  for (int step = 1; step <= 5; ++step) {
    const SerialStep figures = store.step();
    const std::uint64_t moment = setting.bf16_moments ? 2 : 4;
    EXPECT_EQ(figures.bytes_read, kParams * ((item == 2 ? 4 : 0) + 2 * moment));
    EXPECT_EQ(figures.bytes_written, figures.bytes_read);
    EXPECT_GE(figures.seconds * 1.001, figures.read_s + figures.update_s + figures.write_s);
    for (std::uint64_t i = 0; i < kParams; ++i) {
      const double g = value_at(tensors.grad_at(i), tensors.gradient_dtype());
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      p[i] -= 1e-3 * 0.1 * p[i];
      p[i] -= 1e-3 * (m[i] / (1 - std::pow(0.9, step))) /
              (std::sqrt(v[i] / (1 - std::pow(0.95, step))) + 1e-8);
    }
  }
  for (std::uint64_t i = 0; i < kParams; ++i) {
    const double got = value_at(tensors.model_at(i), tensors.parameter_dtype());
    // A bf16 parameter is rounded to 8 bits.
    const double rounding = item == 2 ? std::fabs(p[i]) / 256 : 0;
    ASSERT_NEAR(got, p[i], setting.tolerance * std::fabs(p[i] - begin[i]) + rounding) << i;
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "its files have no names";
}

INSTANTIATE_TEST_SUITE_P(Formats, Serial,
                         ::testing::Values(Case{"fp32", "fp32", false, 1e-3},
                                           Case{"fp32", "bf16", true, 2e-2},
                                           Case{"bf16", "fp32", false, 1e-3},
                                           Case{"bf16", "fp32", true, 2e-2}));

TEST(SerialErrors, name_the_directory_and_a_remedy) {
  const Tensors tensors(1000, 1000, MILLPOND_DTYPE_BF16, MILLPOND_DTYPE_FP32);
  try {
    const SerialStore store({.directories = {"/nonexistent"}, .bucket_elements = 1000}, tensors);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace millpond::cli
