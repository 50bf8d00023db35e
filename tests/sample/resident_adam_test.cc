// Resident Adam against a plain scalar loop over the formula of torch's fused AdamW on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "host_adapters/sample/cpu_model.h"
#include "host_adapters/sample/resident_adam.h"
#include "millpond/error.hpp"
#include "tests/sample/sample_text.h"

namespace millpond::sample {
namespace {

struct Plain {
  std::vector<float> p, m, v;
};

void plain_step(Plain& s, const std::vector<float>& grad, double lr, double wd, float scale,
                const Hyperparameters& h, int t) {
  const auto w = static_cast<float>(1.0 - h.beta1), c = static_cast<float>(1.0 - h.beta2);
  const auto b2 = static_cast<float>(h.beta2), dec = static_cast<float>(1.0 - lr * wd);
  const auto ss = static_cast<float>(-lr / (1.0 - std::pow(h.beta1, t)));
  const auto bs = static_cast<float>(std::sqrt(1.0 - std::pow(h.beta2, t)));
  const auto eps = static_cast<float>(h.eps);
  const std::size_t body = grad.size() / 8 * 8;
  for (std::size_t i = 0; i < grad.size(); ++i) {
    const volatile float g = grad[i] / scale;
    volatile float p = s.p[i] * dec;
    const volatile float d = g - s.m[i];
    s.m[i] = std::fabs(w) < 0.5F ? std::fma(w, d, s.m[i]) : std::fma(w - 1.0F, d, g);
    const volatile float cg = c * g;
    const volatile float old = s.v[i] * b2;
    const volatile float cgg = cg * g;
    s.v[i] = i < body ? std::fma(cg, g, old) : std::fma(s.v[i], b2, cgg);
    const volatile float up = ss * s.m[i];
    const volatile float root = std::sqrt(s.v[i]);
    const volatile float quotient = root / bs;
    const volatile float down = quotient + eps;
    const volatile float move = up / down;
    p = p + move;
    s.p[i] = p;
  }
}

// Hidden 13 and embedding 3 give parameters of every kind of tail.
class ResidentAdamTest : public testing::TestWithParam<double> {};

TEST_P(ResidentAdamTest, same_bits_as_the_formula) {
  CpuDevice device(2);
  CpuModel model(Layout({2, 3, 13, 2}, 1), 5, device);
  Hyperparameters hyper;
  hyper.beta1 = GetParam();
  ResidentAdam adam(model, 0, hyper, device);
  std::vector<Plain> plain;
  for (const Piece& piece : adam.pieces()) {
    Plain state;
    for (std::size_t i = 0; i < piece.numel(); ++i) {
      state.p.push_back(widen(model.value(piece)[i]));
    }
    state.m.resize(piece.numel());
    state.v.resize(piece.numel());
    plain.push_back(state);
  }
  std::uint32_t random = 1;
  for (int t = 1; t <= 20; ++t) {
    const double lr = 1e-3 * t;
    const float scale = t % 3 == 0 ? 1.0F : 1.7F;
    for (const Piece& piece : adam.pieces()) {
      for (float& g : std::span(model.grad(piece), piece.numel())) {
        random = random * 1664525U + 1013904223U;
        g = static_cast<float>(static_cast<std::int32_t>(random)) * 0x1p-31F *
            ((random & 7U) == 0 ? 1e-6F : 1.0F);
      }
    }
    adam.step({lr, scale, false});
    for (std::size_t p = 0; p < plain.size(); ++p) {
      const Piece& piece = adam.pieces()[p];
      const Parameter& parameter = model.layout().parameters()[piece.parameter];
      const std::vector<float> grad(model.grad(piece), model.grad(piece) + piece.numel());
      plain_step(plain[p], grad, lr, parameter.decays ? hyper.weight_decay : 0.0, scale, hyper, t);
      std::vector<float> read(piece.numel());
      const auto expect_equal = [&](Part part, const std::vector<float>& expected) {
        adam.read(p, part, 0, read);
        ASSERT_EQ(std::memcmp(read.data(), expected.data(), read.size() * sizeof(float)), 0)
            << parameter.name << " step " << t << " part " << static_cast<int>(part);
      };
      expect_equal(Part::kMain, plain[p].p);
      expect_equal(Part::kExpAvg, plain[p].m);
      expect_equal(Part::kExpAvgSq, plain[p].v);
      for (std::size_t i = 0; i < piece.numel(); ++i) {
        ASSERT_EQ(model.value(piece)[i], narrow(plain[p].p[i]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Betas, ResidentAdamTest, testing::Values(0.9, 0.4));

TEST(ResidentAdam, found_inf_moves_nothing) {
  CpuDevice device(1);
  CpuModel model(Layout({2, 3, 13, 2}, 1), 5, device);
  ResidentAdam adam(model, 0, {}, device);
  const std::vector<Bfloat> before = model.download(1);
  std::fill_n(model.grad(model.whole(1)), before.size(), std::numeric_limits<float>::infinity());
  adam.step({1e-3, 1.0F, true});
  EXPECT_EQ(model.download(1), before);
}

TEST(Bfloat, rounds_to_nearest_even_and_keeps_nan) {
  EXPECT_EQ(narrow(1.0F), 0x3f80);
  EXPECT_EQ(narrow(1.00390625F), 0x3f80);  // halfway, the even one is below
  EXPECT_EQ(narrow(1.01171875F), 0x3f82);  // halfway, the even one is above
  EXPECT_EQ(narrow(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_EQ(narrow(std::numeric_limits<float>::max()), 0x7f80);
  const std::uint32_t small_nan = 0x7f800001;
  float nan = 0.0F;
  std::memcpy(&nan, &small_nan, sizeof(nan));
  EXPECT_TRUE(std::isnan(widen(narrow(nan))));
}

TEST(ResidentAdam, damaged_and_foreign_files_are_refused) {
  const TestDirectory directory;
  CpuDevice device(1);
  CpuModel model(Layout({2, 3, 13, 2}, 1), 5, device);
  ResidentAdam adam(model, 0, {}, device);
  const std::filesystem::path path = directory.path() / "state";
  adam.save(path);
  EXPECT_NO_THROW(adam.load(path));
  CpuModel wider(Layout({2, 3, 14, 2}, 1), 5, device);
  ResidentAdam other(wider, 0, {}, device);
  EXPECT_THROW(other.load(path), Error);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(100);
  file.put('x');
  file.close();
  EXPECT_THROW(adam.load(path), Error);
  EXPECT_THROW(adam.load(directory.path() / "nothing"), Error);
}

}  // namespace
}  // namespace millpond::sample
