// Which groups of a tile are a warp's, and whose they are.
#ifndef MILLPOND_KERNELS_GROUPS_CUDA_CUH_
#define MILLPOND_KERNELS_GROUPS_CUDA_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/adam_cuda.h"

namespace millpond::kernels {

inline constexpr int kThreads = 256;
inline constexpr unsigned kWarp = 32;
// Places that one warp takes after one another at most.
inline constexpr std::uint32_t kMostRun = 16;

// Finds the pieces of ascending groups.
class PieceFinder {
 public:
  __device__ __forceinline__ explicit PieceFinder(const CudaTile& tile) : tile_(tile) {}

  __device__ __forceinline__ const CudaPiece& piece(std::uint32_t group) {
    if (next_ == 0) {
      search(group);
    } else if (group >= next_) {  // a piece has one group at least
      ++index_;
    } else {
      return tile_.pieces[index_];
    }
    next_ = index_ + 1 < tile_.count ? tile_.pieces[index_ + 1].first_group : tile_.groups;
    return tile_.pieces[index_];
  }

 private:
  // The last piece whose first_group is not beyond the group. All lanes of the warp look for it
  // together, each at one of 32 pieces: three rounds for 10,000.
  __device__ __forceinline__ void search(std::uint32_t group) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    std::uint32_t left = tile_.count;
    while (left > 1) {
      const std::uint32_t step = (left + kWarp - 1) / kWarp;
      const std::uint32_t mine = lane * step;
      const bool before = mine < left && tile_.pieces[index_ + mine].first_group <= group;
      const std::uint32_t part = __popc(__ballot_sync(0xffffffffU, before)) - 1;
      index_ += part * step;
      left = min(step, left - part * step);
    }
  }

  const CudaTile& tile_;
  std::uint32_t index_ = 0;
  std::uint32_t next_ = 0;  // first group of the next piece; 0 before the search
};

// Groups of a tile, or halves of them, that a warp works on at once.
struct Place {
  std::uint32_t group;  // in the tile
  int base;             // of the lane's first quad, in the group
};

// And what of it is a shard's.
struct Share {
  int count;            // elements of the shard in the group
  std::uint64_t begin;  // first element of the group, in the shard
};

__device__ __forceinline__ Share share_of(const CudaPiece& piece, std::uint32_t group) {
  const std::uint64_t begin = (group - piece.first_group) * kGroupElements;
  return {static_cast<int>(min(piece.count - begin, kGroupElements)), piece.shard_begin + begin};
}

// Calls body(place, finder) for all that is this warp's: runs of neighbours, so that a piece is
// looked for once a run; as short as it takes for all warps to get as many.
template <class Shape, class Body>
__device__ __forceinline__ void each_place(const CudaTile& tile, Body body) {
  constexpr std::uint32_t kPlaces = 2 / (Shape::kParts * Shape::kQuads);  // of a group
  const std::uint32_t places = tile.groups * kPlaces;
  const std::uint32_t warps = gridDim.x * (kThreads / kWarp);
  const std::uint32_t rounds = (places + warps * kMostRun - 1) / (warps * kMostRun);
  const std::uint32_t run = (places + warps * rounds - 1) / (warps * rounds);
  const std::uint32_t warp = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp;
  for (std::uint32_t begin = warp * run; begin < places; begin += warps * run) {
    const std::uint32_t end = min(begin + run, places);
    PieceFinder finder(tile);
    for (std::uint32_t place = begin; place < end; ++place) {
      body(
          Place{place / kPlaces, static_cast<int>(place % kPlaces * 128 + threadIdx.x % kWarp * 4)},
          finder);
    }
  }
}

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_GROUPS_CUDA_CUH_
