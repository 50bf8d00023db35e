// Formats: sizes, names, and the scaled ones against a plain loop in double.
#include "kernels/storage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/flat_run.h"
#include "tests/kernels/plain_adam.h"

namespace millpond::kernels {
namespace {

using test::bits_of;
using test::Numbers;

TEST(Storage, names_are_read_as_they_are_written) {
  for (const Storage s : {Storage::kFp32, Storage::kBf16, Storage::kFp16Scaled,
                          Storage::kFp8E4m3Scaled, Storage::kFp8E5m2Scaled}) {
    const std::string name = storage_name(s);
    Storage found{};
    ASSERT_TRUE(parse_storage(name.data(), name.size(), &found)) << name;
    EXPECT_EQ(found, s);
    EXPECT_FALSE(parse_storage(name.data(), name.size() - 1, &found));
  }
  Storage untouched = Storage::kBf16;
  EXPECT_FALSE(parse_storage("fp16", 4, &untouched));
  EXPECT_FALSE(parse_storage("", 0, &untouched));
  EXPECT_EQ(untouched, Storage::kBf16);
}

TEST(Storage, blocks_are_whole_pages_with_their_scales) {
  EXPECT_EQ(block_bytes(Storage::kFp32, 4096), 16'384U);
  EXPECT_EQ(block_bytes(Storage::kBf16, 4096), 8'192U);
  EXPECT_EQ(block_bytes(Storage::kFp16Scaled, 4096), 12'288U);         // 8192 + 64, padded
  EXPECT_EQ(block_bytes(Storage::kFp8E4m3Scaled, 4096), 8'192U);       // 4096 + 64, padded
  EXPECT_EQ(block_bytes(Storage::kFp8E5m2Scaled, 262'144), 266'240U);  // 262144 + 4096
  EXPECT_EQ(run_bytes(Storage::kBf16, 4096 + 256, 4096), 12'288U);
  EXPECT_EQ(scale_offset(Storage::kFp16Scaled, 4096), 8'192U);
}

TEST(Variants, names_are_read_as_they_are_written) {
  for (const Variant v :
       {Variant::kHost, Variant::kTorchCpuFused, Variant::kTorchCpuForeach,
        Variant::kTorchCpuForeachMkl, Variant::kTeFusedAdam, Variant::kTorchCudaFused1,
        Variant::kTorchCudaFused2, Variant::kTorchCudaForeach, Variant::kTorchCudaSingle,
        Variant::kTeFusedAdamFast}) {
    const std::string name = variant_name(v);
    Variant found{};
    ASSERT_TRUE(parse_variant(name.data(), name.size(), &found)) << name;
    EXPECT_EQ(found, v);
  }
  Variant untouched = Variant::kHost;
  EXPECT_FALSE(parse_variant("torch_cpu_fused", 15, &untouched));
}

TEST(Variants, arithmetic_of_cuda_kernels_is_refused_on_a_cpu) {
  for (const Variant v :
       {Variant::kTorchCudaFused1, Variant::kTorchCudaFused2, Variant::kTorchCudaForeach,
        Variant::kTorchCudaSingle, Variant::kTeFusedAdamFast}) {
    const char* why_not = nullptr;
    EXPECT_FALSE(variant_supported(v, false, &why_not));
    EXPECT_NE(why_not, nullptr);
  }
  EXPECT_TRUE(variant_supported(Variant::kTorchCpuFused, false, nullptr));
}

// A format as a list of its magnitudes, built from its definition.
struct Format {
  Storage storage;
  int mantissa_bits, lowest_exponent;  // of normal numbers
  double largest;
  bool has_infinity;
};
constexpr Format kFormats[] = {{Storage::kFp16Scaled, 10, -14, 65504.0, true},
                               {Storage::kFp8E4m3Scaled, 3, -6, 448.0, false},
                               {Storage::kFp8E5m2Scaled, 2, -14, 57344.0, true}};

// Nearest value of the format, ties to even; infinity (or NaN) beyond its largest.
double plain_round(const Format& f, double x) {
  if (std::isnan(x) || std::isinf(x)) {
    return f.has_infinity ? x : std::numeric_limits<double>::quiet_NaN();
  }
  int exponent = 0;
  std::frexp(x, &exponent);
  const int place = std::max(exponent - 1, f.lowest_exponent) - f.mantissa_bits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -place)), place);
  if (std::fabs(rounded) <= f.largest) return rounded;
  return f.has_infinity ? std::copysign(std::numeric_limits<double>::infinity(), x)
                        : std::numeric_limits<double>::quiet_NaN();
}

// The scale of a group: the smallest power of two with which its largest magnitude is finite.
double plain_scale(const Format& f, const float* group, std::size_t count) {
  double largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(group[i])) return 1.0;
    largest = std::max(largest, std::fabs(static_cast<double>(group[i])));
  }
  if (largest == 0) return 1.0;
  double scale = 0x1p-126;
  while (largest / scale > f.largest) scale *= 2;
  return scale;
}

void check_format(const KernelTable& table, const Format& f, const std::vector<float>& values,
                  bool keep_nonzero) {
  const std::uint64_t groups = (values.size() + 255) / 256;
  const std::uint64_t item = item_bytes(f.storage);
  std::vector<unsigned char> codes(groups * 256 * item, 0x55), scales(groups * 4, 0x55);
  const FlatSegment segment{codes.data(), scales.data(), f.storage};
  table.encode(values.data(), segment, values.size(), keep_nonzero);
  std::vector<float> back(groups * 256);
  table.decode(segment, back.data(), back.size());
  const double smallest = std::ldexp(1.0, f.lowest_exponent - f.mantissa_bits);
  for (std::uint64_t g = 0; g < groups; ++g) {
    const std::size_t count = std::min<std::size_t>(256, values.size() - g * 256);
    const double scale = plain_scale(f, values.data() + g * 256, count);
    float stored_scale;
    std::memcpy(&stored_scale, scales.data() + g * 4, 4);
    ASSERT_EQ(stored_scale, scale) << storage_name(f.storage) << " group " << g;
    for (std::size_t i = 0; i < 256; ++i) {
      const float value = i < count ? values[g * 256 + i] : 0.0F;
      double wanted = plain_round(f, value / scale);
      if (keep_nonzero && wanted == 0 && value != 0) wanted = std::copysign(smallest, value);
      wanted *= scale;
      const float got = back[g * 256 + i];
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(got)) << storage_name(f.storage) << ' ' << value;
      } else {
        ASSERT_EQ(bits_of(got), bits_of(static_cast<float>(wanted)))
            << storage_name(f.storage) << ' ' << value << " scale " << scale;
      }
    }
  }
}

class EveryProcessor : public testing::TestWithParam<Processor> {
 protected:
  void SetUp() override {
    table_ = kernel_table(GetParam());
    if (table_ == nullptr) GTEST_SKIP() << "this machine's processor lacks the instructions";
  }
  const KernelTable* table_ = nullptr;
};

TEST_P(EveryProcessor, scaled_formats_against_a_plain_loop) {
  const std::pair<int, int> ranges[] = {{-149, -149}, {-149, -120}, {-126, 127}, {-30, 3},
                                        {-8, -1},     {100, 127},   {-135, -100}};
  for (const Format& f : kFormats) {
    for (const auto& [low, high] : ranges) {
      Numbers numbers(static_cast<std::uint64_t>(high - low + 200));
      for (const std::size_t count : {1, 255, 256, 257, 4096 + 7}) {
        for (const bool keep : {false, true}) {
          check_format(*table_, f, numbers.values(count, low, high), keep);
        }
      }
    }
  }
}

// Exactly between two neighbours, one fp32 place to either side, around the largest value and
// around the smallest.
TEST_P(EveryProcessor, scaled_formats_on_ties_and_borders) {
  for (const Format& f : kFormats) {
    std::vector<float> values{static_cast<float>(f.largest)};  // the scale is 1
    for (int exponent = f.lowest_exponent - f.mantissa_bits - 2; exponent < 15; ++exponent) {
      for (int step = 0; step < 2 << f.mantissa_bits && step < 64; ++step) {
        const double tie = std::ldexp(1.0 + (step + 0.5) / (1 << f.mantissa_bits), exponent);
        for (const float x :
             {static_cast<float>(tie), std::nextafter(static_cast<float>(tie), 0.0F),
              std::nextafter(static_cast<float>(tie), 1e30F)}) {
          if (x > f.largest) continue;
          values.push_back(x);
          values.push_back(-x);
          if (values.size() % 256 == 0) values.push_back(static_cast<float>(f.largest));
        }
      }
    }
    check_format(*table_, f, values, false);
    check_format(*table_, f, values, true);
  }
}

TEST_P(EveryProcessor, nan_and_infinity_stay_visible_with_scale_1) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Format& f : kFormats) {
    for (const float special : {infinity, -infinity, nan}) {
      std::vector<float> values(512, 1.5F);
      values[3] = special;
      values[7] = 1e30F;    // beyond every format
      values[9] = 1e-30F;   // below every format
      values[300] = 3e30F;  // the next group has a scale of its own
      check_format(*table_, f, values, false);
      check_format(*table_, f, values, true);
    }
  }
}

TEST_P(EveryProcessor, R09_a_nonzero_second_moment_never_becomes_zero) {
  std::vector<float> values(256, 1e-30F);
  values[0] = 1.0F;
  values[1] = 0.0F;
  values[2] = 1e-45F;
  for (const Storage s :
       {Storage::kBf16, Storage::kFp16Scaled, Storage::kFp8E4m3Scaled, Storage::kFp8E5m2Scaled}) {
    std::vector<unsigned char> codes(512), scales(4);
    const FlatSegment segment{codes.data(), scales.data(), s};
    table_->encode(values.data(), segment, 256, true);
    std::vector<float> back(256);
    table_->decode(segment, back.data(), 256);
    for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(back[i] != 0, values[i] != 0) << i;
  }
}

TEST_P(EveryProcessor, encode_writes_zero_behind_the_count) {
  const std::vector<float> values(10, 1.0F);
  for (const Storage s : {Storage::kFp32, Storage::kBf16, Storage::kFp16Scaled,
                          Storage::kFp8E4m3Scaled, Storage::kFp8E5m2Scaled}) {
    std::vector<unsigned char> codes(256 * item_bytes(s), 0xff), scales(4);
    table_->encode(values.data(), {codes.data(), scales.data(), s}, 10, false);
    EXPECT_TRUE(std::all_of(codes.begin() + static_cast<long>(10 * item_bytes(s)), codes.end(),
                            [](unsigned char c) { return c == 0; }))
        << storage_name(s);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryProcessor,
                         testing::Values(Processor::kPortable, Processor::kAvx2,
                                         Processor::kAvx512));

}  // namespace
}  // namespace millpond::kernels
