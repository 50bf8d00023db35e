// The update against plain loops: every processor's code, tails, cuts, flags, formats of gradients
// and parameters, stored moments.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/flat_run.h"
#include "tests/kernels/plain_adam.h"

namespace millpond::kernels {
namespace {

using test::bits_of;
using test::Numbers;
using test::plain_bf16;
using test::PlainHyper;

constexpr std::uint64_t kBlock = 4096;

Hyper hyper_of(Variant variant, const PlainHyper& h) {
  return {variant,        h.lr,   h.beta1,      h.beta2,     h.eps,
          h.weight_decay, h.step, h.grad_scale, h.decoupled, h.maximize};
}

// One parameter stored in blocks, updated in runs cut at block boundaries and at `cut`.
struct Stored {
  Stored(const std::vector<float>& values, Storage storage)
      : numel(values.size()),
        storage(storage),
        elements(round_up(std::max<std::uint64_t>(numel, 1), kGroupElements)),
        bytes(run_bytes(storage, elements, kBlock)) {
    each([&](std::uint64_t begin, std::uint64_t count) {
      encode(values.data() + begin, at(begin), count, false);
    });
  }
  StoredRun at(std::uint64_t element) {
    const std::uint64_t block = element / kBlock;
    return {bytes.data() + block * block_bytes(storage, kBlock),
            std::min(kBlock, elements - block * kBlock), element % kBlock, storage};
  }
  template <typename Function>
  void each(Function function, std::uint64_t cut = kBlock) {
    for (std::uint64_t begin = 0; begin < numel;) {
      const std::uint64_t count =
          std::min({numel - begin, cut - begin % cut, kBlock - begin % kBlock});
      function(begin, count);
      begin += count;
    }
  }
  std::vector<float> values() {
    std::vector<float> all(numel);
    each([&](std::uint64_t begin, std::uint64_t count) {
      decode(at(begin), all.data() + begin, count);
    });
    return all;
  }
  std::uint64_t numel;
  Storage storage;
  std::uint64_t elements;
  std::vector<std::byte> bytes;
};

struct Kept {
  Stored main, exp_avg, exp_avg_sq;
  std::vector<std::uint16_t> model;
};

void step_stored(const KernelTable& table, Kept& kept, const void* grad, Element grad_element,
                 const Hyper& hyper, bool fresh, std::uint64_t cut) {
  const Scalars scalars = prepare(hyper);
  kept.main.each(
      [&](std::uint64_t begin, std::uint64_t count) {
        kernels::Run run{};
        run.main = kept.main.at(begin);
        run.exp_avg = kept.exp_avg.at(begin);
        run.exp_avg_sq = kept.exp_avg_sq.at(begin);
        run.grad = static_cast<const std::byte*>(grad) + begin * item_bytes(grad_element);
        run.model = kept.model.data() + begin;
        run.count = count;
        run.shard_begin = begin;
        run.shard_numel = kept.main.numel;
        run.grad_element = grad_element;
        run.model_element = Element::kBf16;
        run.moments_present = !fresh;
        table.update(flatten(run, hyper.variant), scalars);
      },
      cut);
}

class EveryProcessor : public testing::TestWithParam<Processor> {
 protected:
  void SetUp() override {
    table_ = kernel_table(GetParam());
    if (table_ == nullptr) GTEST_SKIP() << "this machine's processor lacks the instructions";
  }
  const KernelTable* table_ = nullptr;
};

void expect_same(const std::vector<float>& got, const std::vector<float>& wanted,
                 const char* what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(bits_of(got[i]), bits_of(wanted[i])) << what << " at " << i << " of " << got.size();
  }
}

void run_against_plain_loop(const KernelTable& table, std::size_t numel, bool fused,
                            PlainHyper plain, std::uint64_t cut, int steps) {
  SCOPED_TRACE(testing::Message() << numel << " elements, fused " << fused << ", cut " << cut);
  Numbers numbers(numel + cut);
  std::vector<float> p = numbers.values(numel, -12, 1), m(numel), v(numel);
  // Moments before the first step are not read: they start as garbage.
  const std::vector<float> garbage(numel, 1e30F);
  Kept kept{Stored(p, Storage::kFp32), Stored(garbage, Storage::kFp32),
            Stored(garbage, Storage::kFp32), std::vector<std::uint16_t>(numel)};
  const Variant variant = fused ? Variant::kTorchCpuFused : Variant::kTorchCpuForeach;
  for (int step = 1; step <= steps; ++step) {
    plain.step = step;
    plain.lr *= 1.01;  // a schedule
    const std::vector<float> g = numbers.values(numel, -40, 2);
    plain_torch(p, m, v, g, plain, fused);
    step_stored(table, kept, g.data(), Element::kFp32, hyper_of(variant, plain), step == 1, cut);
  }
  expect_same(kept.main.values(), p, "main");
  expect_same(kept.exp_avg.values(), m, "exp_avg");
  expect_same(kept.exp_avg_sq.values(), v, "exp_avg_sq");
  for (std::size_t i = 0; i < numel; ++i) {
    ASSERT_EQ(kept.model[i], plain_bf16(p[i])) << "model at " << i;
  }
}

TEST_P(EveryProcessor, torch_formulas_on_every_tail_and_cut) {
  for (const bool fused : {true, false}) {
    for (std::size_t numel = 0; numel <= 40; ++numel) {
      run_against_plain_loop(*table_, numel, fused, {}, kBlock, 4);
    }
    for (const std::size_t numel : {255, 256, 257, 263, 4095, 4096, 4097, 8191, 12'290}) {
      for (const std::uint64_t cut : {256, 768, 4096}) {
        run_against_plain_loop(*table_, numel, fused, {}, cut, 3);
      }
    }
  }
}

TEST_P(EveryProcessor, torch_formulas_over_many_steps) {
  for (const bool fused : {true, false}) {
    run_against_plain_loop(*table_, 20'005, fused, {}, 1024, 60);
  }
}

TEST_P(EveryProcessor, torch_flags_and_hyperparameters) {
  std::vector<PlainHyper> cases;
  for (const bool decoupled : {true, false}) {
    for (const bool maximize : {true, false}) {
      for (const float scale : {1.0F, 3.0F, 65536.0F}) {
        PlainHyper h;
        h.decoupled = decoupled;
        h.maximize = maximize;
        h.grad_scale = scale;
        cases.push_back(h);
        h.weight_decay = 0;
        cases.push_back(h);
      }
    }
  }
  for (const double beta1 : {0.0, 0.3, 0.5, 0.501, 0.95}) {
    PlainHyper h;
    h.beta1 = beta1;
    h.beta2 = 0.9;
    cases.push_back(h);
  }
  for (const PlainHyper& h : cases) {
    for (const bool fused : {true, false}) run_against_plain_loop(*table_, 1021, fused, h, 256, 5);
  }
}

// The Transformer Engine formula has no original on a CPU: within a tolerance of double.
TEST_P(EveryProcessor, te_formula_is_near_a_double_loop) {
  constexpr std::size_t kNumel = 5003;
  Numbers numbers(5);
  const std::vector<float> start = numbers.values(kNumel, -8, 0);
  std::vector<double> p(start.begin(), start.end()), m(kNumel), v(kNumel);
  Kept kept{Stored(start, Storage::kFp32), Stored(start, Storage::kFp32),
            Stored(start, Storage::kFp32), std::vector<std::uint16_t>(kNumel)};
  PlainHyper plain;
  for (plain.step = 1; plain.step <= 40; ++plain.step) {
    const std::vector<float> g = numbers.values(kNumel, -20, 2);
    plain_te(p, m, v, g, plain);
    step_stored(*table_, kept, g.data(), Element::kFp32, hyper_of(Variant::kTeFusedAdam, plain),
                plain.step == 1, 512);
  }
  const std::vector<float> main = kept.main.values(), exp_avg_sq = kept.exp_avg_sq.values();
  for (std::size_t i = 0; i < kNumel; ++i) {
    ASSERT_NEAR(main[i], p[i], 2e-6 + 1e-6 * std::fabs(p[i])) << i;
    ASSERT_NEAR(exp_avg_sq[i], v[i], 2e-6 * v[i]) << i;
  }
}

// Gradients of 16 bits at odd addresses, as DDP's bucket views have them, equal their fp32 values.
TEST_P(EveryProcessor, narrow_gradients_equal_widened_ones) {
  constexpr std::size_t kNumel = 1029;
  Numbers numbers(6);
  const std::vector<float> start = numbers.values(kNumel, -8, 0);
  for (const Element element : {Element::kBf16, Element::kFp16}) {
    std::vector<std::uint16_t> storage(kNumel + 1);
    std::vector<float> wide(kNumel);
    for (std::size_t i = 0; i < kNumel; ++i) {
      // 8 bits of mantissa and few binades: the same value in fp32, bf16 and fp16.
      const int exponent = static_cast<int>(numbers.next() % 12) - 10;
      const float mantissa = 1.0F + static_cast<float>(numbers.next() % 128) / 128;
      wide[i] = std::ldexp(mantissa, exponent);
      storage[i + 1] = element == Element::kBf16
                           ? plain_bf16(wide[i])
                           : static_cast<std::uint16_t>((exponent + 15) << 10 |
                                                        ((bits_of(wide[i]) >> 13) & 1023));
    }
    Kept narrow{Stored(start, Storage::kFp32), Stored(start, Storage::kFp32),
                Stored(start, Storage::kFp32), std::vector<std::uint16_t>(kNumel)};
    Kept widened = narrow;
    const Hyper hyper = hyper_of(Variant::kTorchCpuFused, PlainHyper());
    step_stored(*table_, narrow, storage.data() + 1, element, hyper, true, 256);
    step_stored(*table_, widened, wide.data(), Element::kFp32, hyper, true, 256);
    EXPECT_EQ(narrow.main.bytes, widened.main.bytes);
    EXPECT_EQ(narrow.exp_avg_sq.bytes, widened.exp_avg_sq.bytes);
    EXPECT_EQ(narrow.model, widened.model);
  }
}

// A parameter that is its own main: the model is updated in place, nothing else is written.
TEST_P(EveryProcessor, moments_only_updates_the_model_itself) {
  constexpr std::size_t kNumel = 777;
  Numbers numbers(7);
  std::vector<float> p = numbers.values(kNumel, -8, 0), m(kNumel), v(kNumel);
  std::vector<float> model = p;
  Stored exp_avg(m, Storage::kFp32), exp_avg_sq(v, Storage::kFp32);
  PlainHyper plain;
  for (plain.step = 1; plain.step <= 3; ++plain.step) {
    const std::vector<float> g = numbers.values(kNumel, -20, 2);
    plain_torch(p, m, v, g, plain, true);
    const Hyper hyper = hyper_of(Variant::kTorchCpuFused, plain);
    exp_avg.each([&](std::uint64_t begin, std::uint64_t count) {
      kernels::Run run{};
      run.exp_avg = exp_avg.at(begin);
      run.exp_avg_sq = exp_avg_sq.at(begin);
      run.grad = g.data() + begin;
      run.model = model.data() + begin;
      run.count = count;
      run.shard_begin = begin;
      run.shard_numel = kNumel;
      run.moments_present = true;
      table_->update(flatten(run, hyper.variant), prepare(hyper));
    });
  }
  expect_same(model, p, "model");
  expect_same(exp_avg.values(), m, "exp_avg");
}

// Moments of any format: the formula on the decoded values, then the encoding; gaps stay zero.
TEST_P(EveryProcessor, stored_moments_are_decoded_updated_encoded) {
  for (const Storage storage :
       {Storage::kBf16, Storage::kFp16Scaled, Storage::kFp8E4m3Scaled, Storage::kFp8E5m2Scaled}) {
    for (const std::size_t numel : {5, 256, 300, 5001}) {
      Numbers numbers(numel);
      std::vector<float> p = numbers.values(numel, -8, 0);
      Stored exp_avg(numbers.values(numel, -12, -3), storage);
      std::vector<float> squares = numbers.values(numel, -30, -6);
      for (float& v : squares) v = std::fabs(v);
      Stored exp_avg_sq(squares, storage);
      std::vector<float> m = exp_avg.values(), v = exp_avg_sq.values();
      Kept kept{Stored(p, Storage::kFp32), exp_avg, exp_avg_sq, std::vector<std::uint16_t>(numel)};
      PlainHyper plain;
      plain.step = 9;
      const std::vector<float> g = numbers.values(numel, -20, 0);
      plain_torch(p, m, v, g, plain, true);
      step_stored(*table_, kept, g.data(), Element::kFp32, hyper_of(Variant::kTorchCpuFused, plain),
                  false, 512);
      expect_same(kept.main.values(), p, "main");
      Stored wanted_m(m, storage), wanted_v(m, storage);
      wanted_v.each([&](std::uint64_t begin, std::uint64_t count) {
        encode(v.data() + begin, wanted_v.at(begin), count, true);
      });
      EXPECT_EQ(kept.exp_avg.bytes, wanted_m.bytes) << storage_name(storage) << ' ' << numel;
      EXPECT_EQ(kept.exp_avg_sq.bytes, wanted_v.bytes) << storage_name(storage) << ' ' << numel;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, EveryProcessor,
                         testing::Values(Processor::kPortable, Processor::kAvx2,
                                         Processor::kAvx512),
                         [](const auto& info) {
                           return std::string(info.param == Processor::kPortable ? "portable"
                                              : info.param == Processor::kAvx2   ? "avx2"
                                                                                 : "avx512");
                         });

}  // namespace
}  // namespace millpond::kernels
