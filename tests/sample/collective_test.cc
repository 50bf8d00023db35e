// Ranks as threads of this process over the real shared memory, against sums written out here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "host_adapters/sample/cpu_device.h"
#include "host_adapters/sample/cpu_model.h"
#include "host_adapters/sample/gradients.h"
#include "host_adapters/sample/shared_memory.h"
#include "tests/sample/sample_text.h"

namespace millpond::sample {
namespace {

constexpr millpond_stream kHost = {MILLPOND_DEVICE_CPU, 0, 0};

// Runs `body` for every rank, each on a thread.
void on_ranks(processes::Meeting& meeting,
              const std::function<void(Collective&, CpuDevice&)>& body) {
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < meeting.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      CpuDevice device(1);
      SharedMemory ranks(meeting, rank, device);
      body(ranks, device);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

float addend(std::uint32_t rank, std::size_t index) {
  return std::sin(static_cast<float>(index * 7 + rank * 1000)) * std::exp2(float(rank) * 3.0F);
}

// ((0 + 1) + (2 + 3)) + ((4 + 5) + 6), written as the recursion that it is.
float tree(const std::vector<float>& values, std::size_t first, std::size_t count) {
  if (count == 1) return values[first];
  std::size_t left = 1;
  while (2 * left < count) left *= 2;
  return tree(values, first, left) + tree(values, first + left, count - left);
}

class Ranks : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Ranks, reduce_scatter_sums_as_a_balanced_tree_whatever_the_slot) {
  for (const std::size_t slot : {64U, 4096U}) {
    for (const std::size_t count : {1U, 5U, 333U}) {
      processes::Meeting meeting(GetParam(), slot * GetParam(), 60.0);
      on_ranks(meeting, [&](Collective& ranks, CpuDevice&) {
        std::vector<float> send(count * ranks.size());
        for (std::size_t i = 0; i < send.size(); ++i) send[i] = addend(ranks.rank(), i);
        float* own = send.data() + ranks.rank() * count;  // in place
        ranks.reduce_scatter(send.data(), own, count, kHost);
        for (std::size_t i = 0; i < count; ++i) {
          std::vector<float> values;
          for (std::uint32_t r = 0; r < ranks.size(); ++r) {
            values.push_back(addend(r, ranks.rank() * count + i));
          }
          EXPECT_EQ(own[i], tree(values, 0, values.size()));
        }
      });
    }
  }
}

TEST_P(Ranks, all_gather_orders_by_rank) {
  for (const std::size_t bytes : {1U, 64U, 1000U}) {
    processes::Meeting meeting(GetParam(), 64, 60.0);
    on_ranks(meeting, [&](Collective& ranks, CpuDevice&) {
      std::vector<std::uint8_t> all(bytes * ranks.size(), 0xEE);
      const std::vector<std::uint8_t> own(bytes, static_cast<std::uint8_t>(ranks.rank() + 1));
      ranks.all_gather(own.data(), all.data(), bytes, kHost);
      for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i / bytes + 1);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, Ranks, testing::Values(1U, 2U, 3U, 5U, 8U));

TEST(LayoutTest, ranges_cover_every_element_once_and_are_cut_at_slices) {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 7U}) {
    const Layout layout({4, 16, 96, 3}, ranks);
    std::vector<std::size_t> next(layout.parameters().size(), 0);
    for (std::size_t section = 0; section < Layout::kSections; ++section) {
      EXPECT_EQ(layout.range(section) % kSlice, 0U);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        for (const Piece& piece : layout.pieces(rank, section)) {
          const Parameter& parameter = layout.parameters()[piece.parameter];
          EXPECT_EQ(piece.begin, next[piece.parameter]) << parameter.name;
          EXPECT_EQ(piece.begin % kSlice, 0U);
          EXPECT_EQ(piece.offset, parameter.offset + piece.begin);
          EXPECT_GE(piece.offset, rank * layout.range(section));
          EXPECT_LE(piece.offset + piece.numel(), (rank + 1) * layout.range(section));
          next[piece.parameter] = piece.end;
        }
      }
    }
    for (std::size_t p = 0; p < next.size(); ++p) EXPECT_EQ(next[p], layout.parameters()[p].numel);
  }
}

// Every rank count gives the bits of one rank; and one rank's gradient is the whole batch's.
TEST(GradientsTest, the_number_of_ranks_changes_no_bit) {
  const TestDirectory directory;
  const Shape shape = {4, 16, 48, 2};
  const Text text(directory.text(), shape.context);
  Batch batch;
  text.draw(1, 1, 50, &batch);  // micro-batches of 4 and 5 rows
  constexpr std::size_t kMicroBatches = 12;
  const auto compute = [&](std::uint32_t count, std::vector<float>* gradient, double* nats,
                           double* norm) {
    EXPECT_EQ(unfit_micro_batches(kMicroBatches, count), "");
    processes::Meeting meeting(count, 4096, 60.0);
    const Layout layout(shape, count);
    gradient->assign(layout.elements(0), 0.0F);
    on_ranks(meeting, [&](Collective& ranks, CpuDevice& device) {
      CpuModel model(layout, 3, device);
      Gradients gradients(model, ranks, kMicroBatches);
      const double own_nats = gradients.compute(text, batch);
      const double own_norm = gradients.norm();
      const std::size_t range = layout.range(0);
      std::copy_n(model.grads(0) + ranks.rank() * range, range,
                  gradient->data() + ranks.rank() * range);
      if (ranks.rank() == 0) {
        *nats = own_nats;
        *norm = own_norm;
      }
    });
  };
  std::vector<float> one;
  double nats = 0.0, norm = 0.0;
  compute(1, &one, &nats, &norm);
  for (const std::uint32_t count : {3U, 6U, 12U}) {
    std::vector<float> many;
    double many_nats = 0.0, many_norm = 0.0;
    compute(count, &many, &many_nats, &many_norm);
    many.resize(one.size());
    EXPECT_EQ(one, many) << count;
    EXPECT_EQ(nats, many_nats);
    EXPECT_EQ(norm, many_norm);
  }
  CpuDevice device(1);
  CpuModel model(Layout(shape, 1), 3, device);
  EXPECT_NEAR(model.backward(batch.contexts, batch.targets, 50) / 50.0, nats, 1e-6);
  double squares = 0.0;
  for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(model.grads(0)[i], one[i], 1e-6);
  for (std::size_t p = 0; p < model.layout().parameters().size(); ++p) {
    const Piece piece = model.whole(p);
    for (std::size_t i = 0; i < piece.numel(); ++i) {
      squares += double{model.grad(piece)[i]} * model.grad(piece)[i];
    }
  }
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-6 * norm);
}

TEST(GradientsTest, micro_batches_that_would_break_the_tree_are_refused) {
  EXPECT_EQ(unfit_micro_batches(5, 1), "");
  EXPECT_EQ(unfit_micro_batches(4, 4), "");
  EXPECT_EQ(unfit_micro_batches(12, 3), "");
  EXPECT_NE(unfit_micro_batches(4, 3), "");
  EXPECT_NE(unfit_micro_batches(6, 2), "");
  EXPECT_NE(unfit_micro_batches(2, 4), "");
}

}  // namespace
}  // namespace millpond::sample
