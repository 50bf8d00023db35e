// The update against a loop with the same reads and writes and no arithmetic: run by hand, the
// figures are ratios within one run. Arguments: elements, storage of the moments, threads.
#include <benchmark/benchmark.h>

#include <cstring>
#include <thread>
#include <vector>

#include "kernels/flat_run.h"

namespace {

using millpond::kernels::Element;
using millpond::kernels::Hyper;
using millpond::kernels::Run;
using millpond::kernels::Storage;
using millpond::kernels::StoredRun;
using millpond::kernels::Variant;

constexpr std::uint64_t kBlock = 262'144;

struct Tensors {
  Tensors(std::uint64_t numel, Storage storage)
      : numel(numel),
        storage(storage),
        main(numel * 4),
        exp_avg(millpond::kernels::run_bytes(storage, numel, kBlock)),
        exp_avg_sq(exp_avg.size()),
        grad(numel * 4),
        model(numel * 2) {
    auto* g = reinterpret_cast<float*>(grad.data());
    for (std::uint64_t i = 0; i < numel; ++i) g[i] = static_cast<float>(i % 1001) * 1e-5F;
  }
  std::uint64_t numel;
  Storage storage;
  std::vector<std::byte> main, exp_avg, exp_avg_sq, grad, model;
};

Run run_of(Tensors& t, std::uint64_t block) {
  Run run{};
  const std::uint64_t first = block * kBlock;
  run.count = std::min(kBlock, t.numel - first);
  run.main = {t.main.data() + first * 4, run.count, 0, Storage::kFp32};
  const std::uint64_t bytes = millpond::kernels::block_bytes(t.storage, kBlock);
  run.exp_avg = {t.exp_avg.data() + block * bytes, run.count, 0, t.storage};
  run.exp_avg_sq = {t.exp_avg_sq.data() + block * bytes, run.count, 0, t.storage};
  run.grad = t.grad.data() + first * 4;
  run.model = t.model.data() + first * 2;
  run.shard_begin = first;
  run.shard_numel = t.numel;
  run.grad_element = Element::kFp32;
  run.model_element = Element::kBf16;
  run.moments_present = true;
  return run;
}

template <typename Body>
void on_threads(int threads, std::uint64_t blocks, const Body& body) {
  std::vector<std::thread> team;
  const auto work = [&](int id) {
    for (std::uint64_t b = id; b < blocks; b += threads) body(b);
  };
  for (int id = 1; id < threads; ++id) team.emplace_back(work, id);
  work(0);
  for (std::thread& t : team) t.join();
}

std::uint64_t bytes_moved(const Tensors& t) {
  return 2 * t.main.size() + 2 * t.exp_avg.size() + 2 * t.exp_avg_sq.size() + t.grad.size() +
         t.model.size();
}

void update(benchmark::State& state) {
  Tensors t(state.range(0), static_cast<Storage>(state.range(1)));
  const auto threads = static_cast<int>(state.range(2));
  const auto scalars = millpond::kernels::prepare(
      {static_cast<Variant>(state.range(3)), 1e-3, 0.9, 0.999, 1e-8, 0.1, 10, 1.0F, true, false});
  for (auto _ : state) {
    on_threads(threads, (t.numel + kBlock - 1) / kBlock,
               [&](std::uint64_t b) { millpond::kernels::update(run_of(t, b), scalars); });
  }
  state.SetBytesProcessed(state.iterations() * bytes_moved(t));
}

// Adds one to every word of main and moments, folds the gradient in, writes the model.
__attribute__((noinline)) void touch(const Run& run, std::uint64_t moment_bytes) {
  auto* main = reinterpret_cast<std::uint32_t*>(run.main.block);
  const auto* grad = static_cast<const std::uint32_t*>(run.grad);
  auto* model = static_cast<std::uint16_t*>(run.model);
  auto* m = reinterpret_cast<std::uint32_t*>(run.exp_avg.block);
  auto* v = reinterpret_cast<std::uint32_t*>(run.exp_avg_sq.block);
  const std::uint64_t per = run.count * 4 / moment_bytes;  // elements a word of moments
  for (std::uint64_t i = 0; i < run.count; i += 256) {
    for (std::uint64_t k = i; k < i + 256; ++k) {
      main[k] += grad[k];
      model[k] = static_cast<std::uint16_t>(main[k]);
    }
    for (std::uint64_t k = i / per; k < (i + 256) / per; ++k) {
      m[k] += 1;
      v[k] += 1;
    }
  }
}

void same_bytes(benchmark::State& state) {
  Tensors t(state.range(0), static_cast<Storage>(state.range(1)));
  const auto threads = static_cast<int>(state.range(2));
  const std::uint64_t item = millpond::kernels::item_bytes(t.storage);
  for (auto _ : state) {
    on_threads(threads, (t.numel + kBlock - 1) / kBlock, [&](std::uint64_t b) {
      const Run run = run_of(t, b);
      touch(run, run.count * item);
    });
  }
  state.SetBytesProcessed(state.iterations() * bytes_moved(t));
}

constexpr std::int64_t kElements = 32 << 20;
void settings(benchmark::internal::Benchmark* b) {
  for (const int storage : {0, 1, 2, 3, 4}) {
    for (const int threads : {1, 2}) b->Args({kElements, storage, threads, 1});
  }
  b->UseRealTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(same_bytes)->Apply(settings);
BENCHMARK(update)->Apply(settings);
BENCHMARK(update)
    ->Args({kElements, 0, 2, static_cast<int>(Variant::kTorchCpuForeachMkl)})
    ->Args({kElements, 0, 2, static_cast<int>(Variant::kTeFusedAdam)})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
