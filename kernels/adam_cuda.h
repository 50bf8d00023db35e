// Adam on stored bytes, on a CUDA device: the same contracts, formats and formulas as adam.h, a
// tile with all its shards a launch. C++17; needs no CUDA header.
#ifndef MILLPOND_KERNELS_ADAM_CUDA_H_
#define MILLPOND_KERNELS_ADAM_CUDA_H_

#include <cstdint>

#include "kernels/adam.h"

namespace millpond::kernels {

// One segment of a tile: whole blocks, the last one perhaps shorter. In device memory, or in host
// memory mapped for the device.
struct CudaSegment {
  unsigned char* data;        // NULL: the tile has none of it
  std::uint64_t block_bytes;  // of every block but the last
  std::uint64_t scales;       // where they begin in a block, in bytes
  std::uint64_t last_scales;  // and in the last one
  std::uint32_t last_block;   // its index
  Storage storage;
};

// `elements`: of the tile, a multiple of kGroupElements.
constexpr CudaSegment cuda_segment(unsigned char* data, Storage storage, std::uint64_t elements,
                                   std::uint64_t block_elements) {
  const std::uint64_t last = elements == 0 ? 0 : (elements - 1) / block_elements;
  return {data,
          block_bytes(storage, block_elements),
          scale_offset(storage, block_elements),
          scale_offset(storage, elements - last * block_elements),
          static_cast<std::uint32_t>(last),
          storage};
}

// A run of one shard in a tile. Pieces of a tile ascend and cover all its groups.
struct CudaPiece {
  std::uint64_t shard_begin;  // first element, in the shard; multiple of kGroupElements
  std::uint64_t count;        // elements
  std::uint32_t shard;        // index in the table of shards
  std::uint32_t first_group;  // in the tile
};

// What a launch does with a shard. Addresses are those of its first element.
struct CudaShard {
  const unsigned char* grad;
  unsigned char* model;     // NULL: not written
  const float* given_main;  // fill_main: NULL: the model widened
  std::uint32_t scalars;    // index
  Element grad_element;
  Element model_element;
  bool active;  // false: its bytes stay; where moments are made it gets zeros
};

struct CudaTile {
  CudaSegment segments[3];  // main, exp_avg, exp_avg_sq. Without main the model, fp32, is its own
  const CudaPiece* pieces;
  const CudaShard* shards;
  std::uint32_t count;   // pieces, at least 1 where there are groups
  std::uint32_t groups;  // of kGroupElements
  std::uint32_t groups_per_block;
  bool moments_present;  // false: taken as zero, not read, written for every shard
};

// All of these enqueue on `stream` (a cudaStream_t), return a cudaError_t as a number (0 for
// success), and take device addresses that are borrowed until the work is done. `blocks` limits the
// grid.

// Completes scalars that prepare() made: the fused kernel of torch takes powers on the device. Once
// for each set of scalars, before update_on_cuda.
int complete_scalars_on_cuda(Scalars* scalars, std::uint32_t count, void* stream);

// The update of a tile's active shards, all of one variant that variant_supported(variant, true)
// admits.
int update_on_cuda(Variant variant, const CudaTile& tile, const Scalars* scalars,
                   std::uint32_t blocks, void* stream);
// As many blocks as the current device runs at once. Loads the kernel.
int blocks_on_cuda(Variant variant, Storage moments, std::uint32_t* blocks);

// The ceiling of the update: its loads and stores, formats included, without the arithmetic. The
// tile has moments and one dtype of parameters; gradients end up in the parameters.
int move_on_cuda(const CudaTile& tile, std::uint32_t blocks, void* stream);

// Active shards: main := given_main, else the model widened. fp32 mains.
int fill_main_on_cuda(const CudaTile& tile, std::uint32_t blocks, void* stream);
// Active shards: model := main rounded.
int write_model_on_cuda(const CudaTile& tile, std::uint32_t blocks, void* stream);

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_ADAM_CUDA_H_
