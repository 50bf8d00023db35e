// Adam on stored bytes, on a CUDA device: the same contracts, formats and formulas as adam.h, many
// runs a launch. C++17; needs no CUDA header.
#ifndef MILLPOND_KERNELS_ADAM_CUDA_H_
#define MILLPOND_KERNELS_ADAM_CUDA_H_

#include <cstdint>

#include "kernels/flat_run.h"

namespace millpond::kernels {

// One run in device memory (or host memory mapped for the device), as flatten() makes it.
struct CudaPiece {
  FlatRun run;
  std::uint64_t first_group;  // groups of 256 elements in the pieces before
  std::uint32_t scalars;      // index
  std::uint32_t reserved;
};

constexpr std::uint64_t groups_of(std::uint64_t count) {
  return (count + kGroupElements - 1) / kGroupElements;
}

// Both enqueue on `stream` (a cudaStream_t) and return a cudaError_t as a number, 0 for success.
// Pointers are device addresses, borrowed until the work is done.

// Completes scalars that prepare() made: the fused kernel of torch takes powers on the device. Once
// for each set of scalars, before update_on_cuda.
int complete_scalars_on_cuda(Scalars* scalars, std::uint32_t count, void* stream);

// The update of `count` pieces, `groups` groups in all, all of one variant that
// variant_supported(variant, true) admits. `scaled`: some segment's format has scales. `blocks`
// limits the grid; 0: as many as the device runs at once.
int update_on_cuda(Variant variant, const CudaPiece* pieces, std::uint32_t count,
                   std::uint64_t groups, bool scaled, const Scalars* scalars, std::uint32_t blocks,
                   void* stream);

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_ADAM_CUDA_H_
