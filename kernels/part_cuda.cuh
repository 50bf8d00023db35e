// What a warp works on at once: loaded, decoded, computed and stored.
#ifndef MILLPOND_KERNELS_PART_CUDA_CUH_
#define MILLPOND_KERNELS_PART_CUDA_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/formulas_cuda.cuh"
#include "kernels/group_cuda.cuh"
#include "kernels/groups_cuda.cuh"

namespace millpond::kernels {

// What a tile's moments are stored as: kernels for the two common formats, and one for all.
enum class Moments : std::uint8_t { kFp32, kBf16, kAny };

// How a warp takes groups: `kParts` parts of `kQuads` quads a lane at once, which share what is
// decided once for a group. `kBlocks`: of a multiprocessor, which limits registers. `kQuick`: with
// QuickLane where the variant has it. The quickest of what was tried on an H200.
template <Moments>
struct Shape {
  static constexpr int kParts = 1, kQuads = 1, kBlocks = 3;
  static constexpr bool kQuick = true;
};
template <>
struct Shape<Moments::kBf16> {
  static constexpr int kParts = 2, kQuads = 1, kBlocks = 3;
  static constexpr bool kQuick = true;
};
// A scale is a whole group's.
template <>
struct Shape<Moments::kAny> {
  static constexpr int kParts = 1, kQuads = 2, kBlocks = 2;
  static constexpr bool kQuick = false;
};

// The group's place in the segment of a moment. Without scales a segment has no holes between its
// blocks.
template <Moments kMoments>
__device__ __forceinline__ GroupSegment segment_at(const CudaTile& tile, int which,
                                                   std::uint32_t group) {
  const CudaSegment& s = tile.segments[which];
  if constexpr (kMoments != Moments::kAny) {
    constexpr Storage kStorage = kMoments == Moments::kFp32 ? Storage::kFp32 : Storage::kBf16;
    return {s.data + group * (kGroupElements * item_bytes(kStorage)), nullptr, kStorage};
  }
  const std::uint32_t block = group / tile.groups_per_block;
  const std::uint32_t inside = group - block * tile.groups_per_block;
  U8* const start = s.data + block * s.block_bytes;
  U8* const scales = start + (block == s.last_block ? s.last_scales : s.scales) + inside * 4;
  return {start + inside * kGroupElements * item_bytes(s.storage), reinterpret_cast<float*>(scales),
          s.storage};
}
__device__ __forceinline__ GroupSegment main_at(const CudaTile& tile, std::uint32_t group) {
  return segment_at<Moments::kFp32>(tile, 0, group);
}

template <int kQuads>
__device__ __forceinline__ Mine<kQuads> filled(float value) {
  Mine<kQuads> values;
#pragma unroll
  for (int k = 0; k < Mine<kQuads>::kCount; ++k) values.x[k] = Lane(value);
  return values;
}

// What a lane works on.
template <int kQuads>
struct StoredState {
  Stored<kQuads> main, exp_avg, exp_avg_sq, grad;
};
template <int kQuads>
struct Values {
  Mine<kQuads> main, exp_avg, exp_avg_sq, grad;
};

// The state behind the shard's end.
template <int kQuads>
__device__ __forceinline__ void set_behind(int base, int count, float value, Values<kQuads>& v) {
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int left = count - place_of(base, q);
    if (left >= 4) continue;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k < left) continue;
      v.main.x[4 * q + k] = v.exp_avg.x[4 * q + k] = v.exp_avg_sq.x[4 * q + k] = Lane(value);
    }
  }
}

// The formula on all of a lane's elements. Not 0 where one of them must be computed by another L.
template <class L, class ThisFormula, int kQuads>
__device__ __forceinline__ std::uint32_t apply(const ThisFormula& formula, Values<kQuads>& v) {
  std::uint32_t doubt = 0;
#pragma unroll
  for (int k = 0; k < Mine<kQuads>::kCount; ++k) {
    State<L> state{L(v.main.x[k].x), L(v.exp_avg.x[k].x), L(v.exp_avg_sq.x[k].x)};
    formula(state, L(v.grad.x[k].x));
    v.main.x[k] = Lane(state.main.x);
    v.exp_avg.x[k] = Lane(state.exp_avg.x);
    v.exp_avg_sq.x[k] = Lane(state.exp_avg_sq.x);
    if constexpr (std::is_same_v<L, QuickLane>) {
      doubt |= state.main.doubt | state.exp_avg.doubt | state.exp_avg_sq.doubt;
    }
  }
  return doubt;
}

template <Variant kVariant, int kQuads>
__device__ __forceinline__ void shape(const Scalars& scalars, Values<kQuads>& v) {
#pragma unroll
  for (int k = 0; k < Mine<kQuads>::kCount; ++k) {
    v.grad.x[k] = shaped<kVariant>(v.grad.x[k], v.main.x[k], scalars);
  }
}

// A part of a group: where a lane's elements of it are, and what is done with them.
template <Moments kMoments>
struct Part {
  static constexpr int kQuads = Shape<kMoments>::kQuads;
  static constexpr bool kScaled = kMoments == Moments::kAny;
  using Elements = Values<kQuads>;

  const CudaTile& tile;
  int base;
  GroupSegment main, exp_avg, exp_avg_sq;
  StoredState<kQuads> stored{};

  __device__ __forceinline__ Part(const CudaTile& t, const Place& at, int part)
      : tile(t),
        base(at.base + part * 128),
        main(main_at(t, at.group)),
        exp_avg(segment_at<kMoments>(t, 1, at.group)),
        exp_avg_sq(segment_at<kMoments>(t, 2, at.group)) {}

  // Nothing of the shard: there are zeros, if anything, where moments exist.
  __device__ __forceinline__ bool empty(const Share& share) const {
    return tile.moments_present && share.count <= base / 128 * 128;
  }
  // Without a main segment the parameter is its own.
  __device__ __forceinline__ bool own_main() const { return tile.segments[0].data == nullptr; }

  __device__ __forceinline__ void load_segments() {
    if (!own_main()) stored.main = load_segment<kQuads>(main, base);
    if (!tile.moments_present) return;
    stored.exp_avg = load_segment<kQuads>(exp_avg, base);
    stored.exp_avg_sq = load_segment<kQuads>(exp_avg_sq, base);
  }
  __device__ __forceinline__ void load_tensors(const CudaShard& shard, const Share& share) {
    if (own_main()) {
      main.data = shard.model + share.begin * sizeof(float);
      stored.main = load_elements<kQuads>(main.data, Element::kFp32, base, share.count);
    }
    stored.grad = load_elements<kQuads>(shard.grad + share.begin * item_bytes(shard.grad_element),
                                        shard.grad_element, base, share.count);
  }

  // After both loads.
  __device__ __forceinline__ Elements decode(const CudaShard& shard) const {
    Elements v;
    v.main = decode_elements(stored.main, Element::kFp32);
    v.grad = decode_elements(stored.grad, shard.grad_element);
    if (tile.moments_present) {
      v.exp_avg = decode_segment<kScaled>(stored.exp_avg, exp_avg);
      v.exp_avg_sq = decode_segment<kScaled>(stored.exp_avg_sq, exp_avg_sq);
    } else {
      v.exp_avg = v.exp_avg_sq = filled<kQuads>(0.0F);
    }
    return v;
  }

  // `model`: what becomes the parameter. kPlain: all can be encoded by the device itself.
  template <bool kPlain>
  __device__ __forceinline__ void store(const CudaShard& shard, const Share& share, Elements& v,
                                        const Mine<kQuads>& model) const {
    set_behind(base, share.count, 0.0F, v);
    store_elements<true>(main.data, Element::kFp32, base, share.count, v.main);
    store_segment<kScaled, kPlain>(exp_avg, base, share.count, v.exp_avg, false);
    store_segment<kScaled, kPlain>(exp_avg_sq, base, share.count, v.exp_avg_sq, true);
    if (shard.model == nullptr || own_main()) return;
    store_elements<kPlain>(shard.model + share.begin * item_bytes(shard.model_element),
                           shard.model_element, base, share.count, model);
  }
  __device__ __forceinline__ void store_zeros() const {
    const Mine<kQuads> zeros = filled<kQuads>(0.0F);
    store_segment<kScaled, true>(exp_avg, base, kGroupElements, zeros, false);
    store_segment<kScaled, true>(exp_avg_sq, base, kGroupElements, zeros, true);
  }
};

// Calls body(shard, share, parts...) for all that is this warp's, with the loads of the parts
// begun. What is stored of a group lies in the same place whoever's it is: it is on its way while
// the piece is looked for. Shards that are not active keep what they have, and get zeros where
// moments are made.
template <Moments kMoments, class Body>
__device__ __forceinline__ void each_part(const CudaTile& tile, Body body) {
  each_place<Shape<kMoments>>(tile, [&](const Place& at, PieceFinder& finder) {
    using ThisPart = Part<kMoments>;
    const auto with_parts = [&](auto... parts) {
      (parts.load_segments(), ...);
      const CudaPiece piece = finder.piece(at.group);
      const CudaShard shard = tile.shards[piece.shard];
      const Share share = share_of(piece, at.group);
      if (shard.active) {
        (parts.load_tensors(shard, share), ...);
        body(shard, share, parts...);
      } else if (!tile.moments_present) {
        (parts.store_zeros(), ...);
      }
    };
    if constexpr (Shape<kMoments>::kParts == 2) {
      with_parts(ThisPart(tile, at, 0), ThisPart(tile, at, 1));
    } else {
      with_parts(ThisPart(tile, at, 0));
    }
  });
}

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_PART_CUDA_CUH_
