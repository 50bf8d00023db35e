// What the vector code gets: plain addresses, with blocks, scales and tails worked out by code that
// every processor can run. Internal to kernels/ and its tests.
#ifndef MILLPOND_KERNELS_FLAT_RUN_H_
#define MILLPOND_KERNELS_FLAT_RUN_H_

#include <cstdint>

#include "kernels/adam.h"

namespace millpond::kernels {

// Stored elements from the run's first on. `data` holds whole groups, also where the run ends
// inside one; `scales` is NULL for formats without.
struct FlatSegment {
  unsigned char* data;
  unsigned char* scales;
  Storage storage;
};

struct FlatRun {
  FlatSegment main;  // the parameter itself where it is its own main
  FlatSegment exp_avg;
  FlatSegment exp_avg_sq;
  const unsigned char* grad;
  unsigned char* model;  // NULL: not written
  std::uint64_t count;
  std::uint64_t body;  // elements before the shard's vector tail; multiple of 8
  Element grad_element;
  Element model_element;
  bool moments_present;
};

// One processor family's code. All entries keep to adam.h's contracts.
struct KernelTable {
  void (*update)(const FlatRun& run, const Scalars& scalars);
  void (*decode)(const FlatSegment& from, float* to, std::uint64_t count);
  void (*encode)(const float* from, const FlatSegment& to, std::uint64_t count, bool keep_nonzero);
  void (*widen)(const unsigned char* from, Element element, float* to, std::uint64_t count);
  void (*narrow)(const float* from, unsigned char* to, Element element, std::uint64_t count);
};

enum class Processor : std::uint8_t { kPortable, kAvx2, kAvx512 };
// NULL where this machine cannot run it.
const KernelTable* kernel_table(Processor processor);
// The widest that this machine can run.
Processor best_processor();

FlatSegment flatten(const StoredRun& run);
FlatRun flatten(const Run& run, Variant variant);

// Defined by update_<processor>.cc.
const KernelTable& portable_kernels();
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_FLAT_RUN_H_
