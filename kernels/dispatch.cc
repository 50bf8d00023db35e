// The public entries: from blocks to plain addresses, to the widest code that this machine runs.
#include "kernels/adam.h"
#include "kernels/flat_run.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace millpond::kernels {
namespace {

// The arithmetic is defined with rounding to nearest and with subnormals, whatever the calling
// thread has set for itself.
class DefaultRounding {
 public:
#if defined(__x86_64__)
  DefaultRounding() : saved_(_mm_getcsr()) {
    if (saved_ != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultRounding() {
    if (saved_ != kDefault) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kDefault = 0x1f80;  // all exceptions masked, none raised
  unsigned saved_;
#else
  DefaultRounding() {}
#endif
 public:
  DefaultRounding(const DefaultRounding&) = delete;
  DefaultRounding& operator=(const DefaultRounding&) = delete;
};

bool processor_runs(Processor processor) {
#if defined(MILLPOND_X86_KERNELS)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  switch (processor) {
    case Processor::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    case Processor::kAvx2:
      return avx2;
    case Processor::kPortable:
      return true;
  }
#endif
  return processor == Processor::kPortable;
}

const KernelTable& best_kernels() {
  static const KernelTable& table = *kernel_table(best_processor());
  return table;
}

unsigned char* bytes_of(std::byte* p) { return static_cast<unsigned char*>(static_cast<void*>(p)); }

}  // namespace

const KernelTable* kernel_table(Processor processor) {
  if (!processor_runs(processor)) return nullptr;
#if defined(MILLPOND_X86_KERNELS)
  if (processor == Processor::kAvx512) return &avx512_kernels();
  if (processor == Processor::kAvx2) return &avx2_kernels();
#endif
  return &portable_kernels();
}

Processor best_processor() {
  if (processor_runs(Processor::kAvx512)) return Processor::kAvx512;
  return processor_runs(Processor::kAvx2) ? Processor::kAvx2 : Processor::kPortable;
}

FlatSegment flatten(const StoredRun& run) {
  if (run.block == nullptr) return {nullptr, nullptr, run.storage};
  unsigned char* block = bytes_of(run.block);
  unsigned char* scales =
      is_scaled(run.storage)
          ? block + scale_offset(run.storage, run.block_elements) + run.first / kGroupElements * 4
          : nullptr;
  return {block + run.first * item_bytes(run.storage), scales, run.storage};
}

FlatRun flatten(const Run& run, Variant variant) {
  FlatRun flat{};
  flat.main = flatten(run.main);
  flat.exp_avg = flatten(run.exp_avg);
  flat.exp_avg_sq = flatten(run.exp_avg_sq);
  flat.grad = static_cast<const unsigned char*>(run.grad);
  flat.model = static_cast<unsigned char*>(run.model);
  if (flat.main.data == nullptr) {
    flat.main = {flat.model, nullptr, Storage::kFp32};
    flat.model = nullptr;
  }
  flat.count = run.count;
  flat.body = run.count;
  if (variant == Variant::kTorchCpuFused) {
    const std::uint64_t tail = run.shard_numel - run.shard_numel % 8;
    if (tail < run.shard_begin + run.count) {
      flat.body = tail > run.shard_begin ? tail - run.shard_begin : 0;
    }
  }
  flat.grad_element = run.grad_element;
  flat.model_element = run.model_element;
  flat.moments_present = run.moments_present;
  return flat;
}

void update(const Run& run, const Scalars& scalars) {
  const DefaultRounding rounding;
  best_kernels().update(flatten(run, scalars.variant), scalars);
}

void decode(const StoredRun& from, float* to, std::uint64_t count) {
  const DefaultRounding rounding;
  best_kernels().decode(flatten(from), to, count);
}

void encode(const float* from, const StoredRun& to, std::uint64_t count, bool keep_nonzero) {
  const DefaultRounding rounding;
  best_kernels().encode(from, flatten(to), count, keep_nonzero);
}

void widen(const void* from, Element element, float* to, std::uint64_t count) {
  const DefaultRounding rounding;
  best_kernels().widen(static_cast<const unsigned char*>(from), element, to, count);
}

void narrow(const float* from, void* to, Element element, std::uint64_t count) {
  const DefaultRounding rounding;
  best_kernels().narrow(from, static_cast<unsigned char*>(to), element, count);
}

}  // namespace millpond::kernels
