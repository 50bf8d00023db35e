// Adam on stored bytes, on the CPU: one pass reads stored main and moments and the gradient, and
// writes stored main, moments and model parameter. Formulas by variant: kernels/README.md.
// Thread-safe; no allocation, no exception.
#ifndef MILLPOND_KERNELS_ADAM_H_
#define MILLPOND_KERNELS_ADAM_H_

#include <cstddef>
#include <cstdint>

#include "kernels/storage.h"

namespace millpond::kernels {

// Named arithmetic: formula and revision. kHost: the host's own Adam applied through a callback.
enum class Variant : std::uint8_t {
  kHost,             // "host/1"
  kTorchCpuFused,    // "torch_cpu_fused/1"        torch 2.6 .. 2.11, AVX2 and AVX-512 builds of the
                     // kernel
  kTorchCpuForeach,  // "torch_cpu_foreach/1"      single-tensor and foreach, IEEE square root
  kTorchCpuForeachMkl,  // "torch_cpu_foreach_mkl/1"  the same with MKL's AVX-512 square root
  kTeFusedAdam,         // "te_fused_adam/1"          Transformer Engine's formula
  kTorchCudaFused1,     // "torch_cuda_fused/1"       torch 2.6: moments and decay in double
  kTorchCudaFused2,     // "torch_cuda_fused/2"       torch 2.11: in float
  kTorchCudaForeach,    // "torch_cuda_foreach/1"
  kTorchCudaSingle,     // "torch_cuda_single/1"
  kTeFusedAdamFast,     // "te_fused_adam_fast/1"     Transformer Engine's and apex's own builds:
                        // --use_fast_math
};
const char* variant_name(Variant v);
bool parse_variant(const char* name, std::uint64_t length, Variant* variant);
// Whether this build can run the variant on the device, and on the CPU whether this processor can
// (FMA, AVX-512 for MKL's square root). `why_not` receives a sentence.
bool variant_supported(Variant v, bool cuda, const char** why_not);

// A group's hyperparameters for one step.
struct Hyper {
  Variant variant;
  double lr, beta1, beta2, eps, weight_decay;
  std::uint64_t step;  // the step being taken, from 1
  float grad_scale;    // g is divided by it; 1 = none
  bool decoupled;
  bool maximize;
};

// Whether the variant's framework was shown to do the same with these settings, bit by bit: L2
// weight decay and maximize are what it depends on. Where it was not, the host's callback is the
// exact way.
bool hyper_proven(const Hyper& hyper, const char** why_not);

// What the inner loop needs, computed once a (group, step counter) exactly as the variant's
// framework does it.
struct Scalars {
  Variant variant;
  bool decoupled, maximize;
  float grad_scale;
  float lr, beta1, beta2, eps, weight_decay;
  float one_minus_beta1, one_minus_beta2, decay, step_size, bias2_sqrt, bias1, bias2;
  double lr_d, beta1_d, beta2_d, eps_d, weight_decay_d;
  std::uint64_t step;
};
Scalars prepare(const Hyper& hyper);

// Stored elements of one segment within one block: element i of the run is element first + i of the
// block.
struct StoredRun {
  std::byte* block;              // start of the block
  std::uint64_t block_elements;  // of this block (the last block of a bucket may be shorter);
                                 // locates the scales
  std::uint64_t first;           // multiple of 256
  Storage storage;
};

// One run of one shard. Never crosses a block; begins at a multiple of 256 elements from the
// shard's start and of the block's; ends at such a multiple or at the shard's end.
struct Run {
  StoredRun main;  // block NULL: the parameter is its own main (model is fp32)
  StoredRun exp_avg;
  StoredRun exp_avg_sq;
  const void* grad;  // first element of the run
  void* model;       // first element of the run; NULL: the host copies mains itself
  std::uint64_t count;
  std::uint64_t shard_begin;  // of the run, in the shard
  std::uint64_t
      shard_numel;  // the shard's elements: its vector tail is its last numel % 8 (torch_cpu_fused)
  Element grad_element;
  Element model_element;
  bool
      moments_present;  // false: exp_avg and exp_avg_sq are taken as zero, their bytes are not read
};

// The update. Elements of the last group behind the shard's end are written as zero in scaled
// formats.
void update(const Run& run, const Scalars& scalars);

// ---- conversions (kernels/convert.cc)
// ------------------------------------------------------------------------------

// Stored -> fp32 and back, `count` elements. encode writes whole groups: elements behind count in
// the last group become zero, so the caller gives a run that ends at its shard's end or at a
// multiple of 256. `keep_nonzero` is the rule for exp_avg_sq: a non-zero value never becomes zero.
void decode(const StoredRun& from, float* to, std::uint64_t count);
void encode(const float* from, const StoredRun& to, std::uint64_t count, bool keep_nonzero);

// Elements of one storage format to another place, `count` of them or, in scaled formats, the
// groups that hold them; both runs begin at a group and stay in their blocks.
void copy_stored(const StoredRun& from, const StoredRun& to, std::uint64_t count);
// A whole block as zeros are stored: zero bytes, and a scale of 1 for every group.
void zero_block(const StoredRun& block);

// Parameters and gradients.
void widen(const void* from, Element element, float* to, std::uint64_t count);
void narrow(const float* from, void* to, Element element, std::uint64_t count);

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_ADAM_H_
