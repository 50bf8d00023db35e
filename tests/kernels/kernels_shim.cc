// A flat C surface over kernels/ for the Python tests, which compare with torch and ml_dtypes. It
// picks the processor's code by number, so that every width is tested on one machine.
#include <cstdint>

#include "kernels/flat_run.h"

using millpond::kernels::Element;
using millpond::kernels::FlatSegment;
using millpond::kernels::Hyper;
using millpond::kernels::KernelTable;
using millpond::kernels::Processor;
using millpond::kernels::Run;
using millpond::kernels::Scalars;
using millpond::kernels::Storage;
using millpond::kernels::StoredRun;
using millpond::kernels::Variant;

#define SHIM extern "C" __attribute__((visibility("default")))

namespace {

const KernelTable* table(int processor) {
  return millpond::kernels::kernel_table(static_cast<Processor>(processor));
}

}  // namespace

// 0 portable, 1 AVX2, 2 AVX-512.
SHIM int shim_processor_runs(int processor) { return table(processor) != nullptr; }

SHIM int shim_variant(const char* name, std::uint64_t length) {
  Variant v{};
  return millpond::kernels::parse_variant(name, length, &v) &&
                 millpond::kernels::variant_supported(v, false, nullptr)
             ? static_cast<int>(v)
             : -1;
}

SHIM int shim_hyper_proven(int variant, int decoupled, int maximize, double weight_decay) {
  Hyper hyper{};
  hyper.variant = static_cast<Variant>(variant);
  hyper.weight_decay = weight_decay;
  hyper.grad_scale = 1.0F;
  hyper.decoupled = decoupled != 0;
  hyper.maximize = maximize != 0;
  return millpond::kernels::hyper_proven(hyper, nullptr);
}

struct ShimStep {
  double lr, beta1, beta2, eps, weight_decay;
  std::uint64_t step;
  float grad_scale;
  std::int32_t variant, decoupled, maximize, fresh;
};

// One whole parameter in fp32 in runs of `run_elements` (a multiple of 256).
SHIM void shim_update(int processor, const ShimStep* s, float* main, float* exp_avg,
                      float* exp_avg_sq, const void* grad, int grad_element, void* model,
                      int model_element, std::uint64_t numel, std::uint64_t run_elements) {
  const Hyper hyper{static_cast<Variant>(s->variant),
                    s->lr,
                    s->beta1,
                    s->beta2,
                    s->eps,
                    s->weight_decay,
                    s->step,
                    s->grad_scale,
                    s->decoupled != 0,
                    s->maximize != 0};
  const Scalars scalars = millpond::kernels::prepare(hyper);
  const auto stored = [](float* from) {
    return StoredRun{static_cast<std::byte*>(static_cast<void*>(from)), 256, 0, Storage::kFp32};
  };
  const auto grad_bytes = millpond::kernels::item_bytes(static_cast<Element>(grad_element));
  const auto model_bytes = millpond::kernels::item_bytes(static_cast<Element>(model_element));
  for (std::uint64_t begin = 0; begin < numel; begin += run_elements) {
    Run run{};
    run.main = stored(main == nullptr ? nullptr : main + begin);
    run.exp_avg = stored(exp_avg + begin);
    run.exp_avg_sq = stored(exp_avg_sq + begin);
    run.grad = static_cast<const char*>(grad) + grad_bytes * begin;
    run.model = model == nullptr ? nullptr : static_cast<char*>(model) + model_bytes * begin;
    run.count = numel - begin < run_elements ? numel - begin : run_elements;
    run.shard_begin = begin;
    run.shard_numel = numel;
    run.grad_element = static_cast<Element>(grad_element);
    run.model_element = static_cast<Element>(model_element);
    run.moments_present = s->fresh == 0;
    table(processor)->update(millpond::kernels::flatten(run, hyper.variant), scalars);
  }
}

SHIM void shim_widen(int processor, const void* from, int element, float* to, std::uint64_t count) {
  table(processor)->widen(static_cast<const unsigned char*>(from), static_cast<Element>(element),
                          to, count);
}
SHIM void shim_narrow(int processor, const float* from, void* to, int element,
                      std::uint64_t count) {
  table(processor)->narrow(from, static_cast<unsigned char*>(to), static_cast<Element>(element),
                           count);
}

// `data` and `scales` hold whole groups of 256.
SHIM void shim_decode(int processor, void* data, void* scales, int storage, float* to,
                      std::uint64_t count) {
  table(processor)->decode(
      FlatSegment{static_cast<unsigned char*>(data), static_cast<unsigned char*>(scales),
                  static_cast<Storage>(storage)},
      to, count);
}
SHIM void shim_encode(int processor, const float* from, void* data, void* scales, int storage,
                      std::uint64_t count, int keep_nonzero) {
  table(processor)->encode(
      from,
      FlatSegment{static_cast<unsigned char*>(data), static_cast<unsigned char*>(scales),
                  static_cast<Storage>(storage)},
      count, keep_nonzero != 0);
}
