// The model against an oracle in double that shares no code with it: plain loops over the formula,
// and finite differences of those.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "host_adapters/sample/cpu_model.h"

namespace millpond::sample {
namespace {

using Values = std::vector<std::vector<double>>;

double oracle_loss(const Shape& shape, const Values& p, const std::vector<std::uint8_t>& contexts,
                   const std::vector<std::uint8_t>& targets) {
  double total = 0.0;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    std::vector<double> x;
    for (std::size_t c = 0; c < shape.context; ++c) {
      for (std::size_t e = 0; e < shape.embedding; ++e) {
        x.push_back(p[0][contexts[row * shape.context + c] * shape.embedding + e]);
      }
    }
    for (std::size_t layer = 0; layer <= shape.layers; ++layer) {
      const std::vector<double>& weight = p[1 + 2 * layer];
      const std::vector<double>& bias = p[2 + 2 * layer];
      std::vector<double> y(bias.size());
      for (std::size_t j = 0; j < y.size(); ++j) {
        y[j] = bias[j];
        for (std::size_t i = 0; i < x.size(); ++i) y[j] += x[i] * weight[i * y.size() + j];
        if (layer < shape.layers) y[j] = std::max(0.0, y[j]);
      }
      x = y;
    }
    double sum = 0.0;
    for (const double logit : x) sum += std::exp(logit);
    total += std::log(sum) - x[targets[row]];
  }
  return total / static_cast<double>(targets.size());
}

struct Case {
  Shape shape;
  std::size_t batch;
};

class Gradient : public testing::TestWithParam<Case> {};

TEST_P(Gradient, agrees_with_finite_differences) {
  const auto& [shape, batch] = GetParam();
  CpuDevice device(2);
  CpuModel model(Layout(shape, 1), 7, device);
  const std::vector<Parameter>& parameters = model.layout().parameters();
  // Biases begin at zero: give them values, so that a wrong use of them shows.
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (parameters[p].shape.size() != 1) continue;
    for (std::size_t i = 0; i < parameters[p].numel; ++i) {
      model.value(model.whole(p))[i] =
          narrow(0.05F * static_cast<float>(static_cast<int>(i % 7) - 3));
    }
  }
  model.values_changed();
  std::vector<std::uint8_t> contexts(batch * shape.context), targets(batch);
  for (std::size_t i = 0; i < contexts.size(); ++i) contexts[i] = (i * 37 + i / 5) % 256;
  for (std::size_t i = 0; i < batch; ++i) targets[i] = (i * 91) % 256;

  Values values;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    values.emplace_back(model.wide(p).begin(), model.wide(p).end());
  }
  const double exact = oracle_loss(shape, values, contexts, targets);
  const auto rows = static_cast<double>(batch);
  EXPECT_NEAR(model.loss(contexts, targets) / rows, exact, 1e-5);
  EXPECT_NEAR(model.backward(contexts, targets, batch) / rows, exact, 1e-5);

  for (std::size_t p = 0; p < values.size(); ++p) {
    const Parameter& parameter = parameters[p];
    const std::span<const float> grad(model.grad(model.whole(p)), parameter.numel);
    double largest = 0.0;
    for (const float g : grad) largest = std::max(largest, std::fabs(double{g}));
    EXPECT_GT(largest, 1e-5) << parameter.name;
    // Every tenth element, and the first and last ones.
    for (std::size_t i = 0; i < parameter.numel; i += i + 1 == parameter.numel ? 1 : 10) {
      constexpr double kStep = 1e-6;
      const double before = values[p][i];
      values[p][i] = before + kStep;
      const double above = oracle_loss(shape, values, contexts, targets);
      values[p][i] = before - kStep;
      const double below = oracle_loss(shape, values, contexts, targets);
      values[p][i] = before;
      const double difference = (above - below) / (2.0 * kStep);
      ASSERT_NEAR(grad[i], difference, 1e-3 * largest + 1e-7) << parameter.name << "[" << i << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Gradient,
                         testing::Values(Case{{3, 5, 7, 2}, 11}, Case{{1, 2, 33, 3}, 40},
                                         Case{{4, 9, 17, 4}, 5}));

TEST(Dense, products_of_every_shape_against_a_plain_loop) {
  Workers workers(3);
  Dense dense(workers);
  for (const std::size_t m : {1, 7, 65}) {
    for (const std::size_t n : {1, 31, 33, 70}) {
      for (const std::size_t k : {1, 255, 256, 257, 600}) {
        std::vector<float> a(m * k), b(k * n), c(m * n, -1.0F);
        for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<float>(i));
        for (std::size_t i = 0; i < b.size(); ++i) b[i] = std::cos(static_cast<float>(3 * i));
        const View left = view(a.data(), m, k), right = view(b.data(), k, n);
        // Each as it is, and through transposed views of transposed copies.
        std::vector<float> at(a.size()), bt(b.size());
        for (std::size_t i = 0; i < m; ++i) {
          for (std::size_t l = 0; l < k; ++l) at[l * m + i] = a[i * k + l];
        }
        for (std::size_t l = 0; l < k; ++l) {
          for (std::size_t j = 0; j < n; ++j) bt[j * k + l] = b[l * n + j];
        }
        dense.multiply(left, right, c.data());
        std::vector<float> again(m * n);
        dense.multiply(transposed(view(at.data(), k, m)), transposed(view(bt.data(), n, k)),
                       again.data());
        EXPECT_EQ(c, again);
        for (std::size_t i = 0; i < m; ++i) {
          for (std::size_t j = 0; j < n; ++j) {
            double sum = 0.0;
            for (std::size_t l = 0; l < k; ++l) sum += double{a[i * k + l]} * b[l * n + j];
            ASSERT_NEAR(c[i * n + j], sum, 1e-6 * static_cast<double>(k) + 1e-5)
                << m << "x" << k << "x" << n << " at " << i << "," << j;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace millpond::sample
