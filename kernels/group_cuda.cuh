// Groups of 256 elements on a CUDA device: a warp has a group or half of one, each of its 32 lanes
// quads of elements, lane * 4 and 128 + lane * 4, so that fp32 moves in accesses of 16 bytes.
// Halves leave room for more warps; formats with a scale need the whole group in one warp.
#ifndef MILLPOND_KERNELS_GROUP_CUDA_CUH_
#define MILLPOND_KERNELS_GROUP_CUDA_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/flat_run.h"
#include "kernels/lanes_portable.h"
#include "kernels/small_float.h"

namespace millpond::kernels {

// The elements of a lane: kQuads times four.
template <int kQuads>
struct Mine {
  static constexpr int kCount = 4 * kQuads;
  Lane x[kCount];
};

// Where a lane's elements are in their group: `base` is lane * 4, and 128 more in the second half.
__device__ __forceinline__ int place_of(int base, int k) { return base + (k / 4) * 128 + k % 4; }

template <class T>
__device__ __forceinline__ bool quad_aligned(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % (4 * sizeof(T)) == 0;
}

// Elements of T as numbers: quads where the address allows and all four are there, else one by one.
// Behind `count` they are zero.
template <class T, class Quad, class Convert, int kQuads>
__device__ __forceinline__ void load_items(const T* from, int base, int count, Mine<kQuads>& to,
                                           Convert convert) {
  const bool aligned = quad_aligned(from);
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int place = place_of(base, 4 * q);
    if (aligned && place + 4 <= count) {
      const Quad quad = __ldcs(reinterpret_cast<const Quad*>(from + place));
      to.x[4 * q] = convert(quad.x);
      to.x[4 * q + 1] = convert(quad.y);
      to.x[4 * q + 2] = convert(quad.z);
      to.x[4 * q + 3] = convert(quad.w);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        to.x[4 * q + k] = place + k < count ? convert(from[place + k]) : Lane(0.0F);
      }
    }
  }
}

template <class T, class Quad, class Convert, int kQuads>
__device__ __forceinline__ void store_items(T* to, int base, int count, const Mine<kQuads>& from,
                                            Convert convert) {
  const bool aligned = quad_aligned(to);
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int place = place_of(base, 4 * q);
    if (aligned && place + 4 <= count) {
      Quad quad;
      quad.x = convert(from.x[4 * q]);
      quad.y = convert(from.x[4 * q + 1]);
      quad.z = convert(from.x[4 * q + 2]);
      quad.w = convert(from.x[4 * q + 3]);
      __stcs(reinterpret_cast<Quad*>(to + place), quad);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (place + k < count) to[place + k] = convert(from.x[4 * q + k]);
      }
    }
  }
}

struct FromFloat {
  __device__ Lane operator()(float x) const { return Lane(x); }
};
struct ToFloat {
  __device__ float operator()(Lane x) const { return x.x; }
};
// A format's codes; a scale of 1 and no rule for zero are those of parameters and gradients.
template <class Format>
struct FromCode {
  Lane scale = Lane(1.0F);
  bool scaled = false;
  __device__ Lane operator()(std::uint32_t code) const {
    const Lane value = Format::template decode<Lane>(LaneBits::of(code));
    return scaled ? value * scale : value;
  }
};
template <class Format, class T>
struct ToCode {
  Lane inverse = Lane(1.0F);
  bool scaled = false;
  bool keep_nonzero = false;
  __device__ T operator()(Lane x) const {
    return static_cast<T>(
        Format::template encode<Lane>(scaled ? x * inverse : x, x, keep_nonzero).x);
  }
};

using U8 = unsigned char;
using U16 = unsigned short;

template <int kQuads>
__device__ __forceinline__ void load_element(const U8* from, Element element, int base, int count,
                                             Mine<kQuads>& to) {
  switch (element) {
    case Element::kFp32:
      return load_items<float, float4>(reinterpret_cast<const float*>(from), base, count, to,
                                       FromFloat());
    case Element::kBf16:
      return load_items<U16, ushort4>(reinterpret_cast<const U16*>(from), base, count, to,
                                      FromCode<Bf16>());
    case Element::kFp16:
      return load_items<U16, ushort4>(reinterpret_cast<const U16*>(from), base, count, to,
                                      FromCode<Fp16>());
  }
}

template <int kQuads>
__device__ __forceinline__ void store_element(U8* to, Element element, int base, int count,
                                              const Mine<kQuads>& from) {
  switch (element) {
    case Element::kFp32:
      return store_items<float, float4>(reinterpret_cast<float*>(to), base, count, from, ToFloat());
    case Element::kBf16:
      return store_items<U16, ushort4>(reinterpret_cast<U16*>(to), base, count, from,
                                       ToCode<Bf16, U16>());
    case Element::kFp16:
      return store_items<U16, ushort4>(reinterpret_cast<U16*>(to), base, count, from,
                                       ToCode<Fp16, U16>());
  }
}

template <class Format, class T, class Quad, int kQuads>
__device__ __forceinline__ void load_scaled(const U8* data, float scale, int base,
                                            Mine<kQuads>& to) {
  FromCode<Format> convert;
  convert.scale = Lane(scale);
  convert.scaled = true;
  load_items<T, Quad>(reinterpret_cast<const T*>(data), base, kGroupElements, to, convert);
}

template <int kQuads>
__device__ __forceinline__ void load_any_scaled(const FlatSegment& from, const U8* data,
                                                std::uint64_t group, int base, Mine<kQuads>& to) {
  const float scale = reinterpret_cast<const float*>(from.scales)[group];
  switch (from.storage) {
    case Storage::kFp16Scaled:
      return load_scaled<Fp16, U16, ushort4>(data, scale, base, to);
    case Storage::kFp8E4m3Scaled:
      return load_scaled<E4m3, U8, uchar4>(data, scale, base, to);
    default:
      return load_scaled<E5m2, U8, uchar4>(data, scale, base, to);
  }
}

// Stored groups are whole in memory, but for fp32, which is updated in place and not written behind
// the run's end.
template <int kQuads>
__device__ __forceinline__ void load_segment(const FlatSegment& from, std::uint64_t group, int base,
                                             int count, Mine<kQuads>& to) {
  const U8* data = from.data + group * kGroupElements * item_bytes(from.storage);
  if constexpr (kQuads == 2) {
    if (is_scaled(from.storage)) return load_any_scaled(from, data, group, base, to);
  }
  if (from.storage == Storage::kBf16) {
    load_element(data, Element::kBf16, base, kGroupElements, to);
  } else {
    load_element(data, Element::kFp32, base, count, to);
  }
}

template <int kQuads>
__device__ __forceinline__ std::int32_t largest_of_group(const Mine<kQuads>& values) {
  std::int32_t largest = 0;
#pragma unroll
  for (int k = 0; k < Mine<kQuads>::kCount; ++k) {
    largest = max(largest, static_cast<std::int32_t>(values.x[k].bits().x & 0x7fffffffU));
  }
  return __reduce_max_sync(0xffffffffU, largest);
}

template <class Format, class T, class Quad, int kQuads>
__device__ __forceinline__ void store_scaled(U8* data, float* scale, int base,
                                             const Mine<kQuads>& from, bool keep_nonzero) {
  const std::int32_t exponent = scale_exponent<Format>(largest_of_group(from));
  if (base == 0) *scale = Lane::from_bits(LaneBits((127 + exponent) << 23)).x;
  ToCode<Format, T> convert;
  convert.inverse = Lane::from_bits(LaneBits((127 - exponent) << 23));
  convert.scaled = true;
  convert.keep_nonzero = keep_nonzero;
  store_items<T, Quad>(reinterpret_cast<T*>(data), base, kGroupElements, from, convert);
}

template <int kQuads>
__device__ __forceinline__ void store_any_scaled(const FlatSegment& to, U8* data,
                                                 std::uint64_t group, int base,
                                                 const Mine<kQuads>& from, bool keep_nonzero) {
  float* scale = reinterpret_cast<float*>(to.scales) + group;
  switch (to.storage) {
    case Storage::kFp16Scaled:
      return store_scaled<Fp16, U16, ushort4>(data, scale, base, from, keep_nonzero);
    case Storage::kFp8E4m3Scaled:
      return store_scaled<E4m3, U8, uchar4>(data, scale, base, from, keep_nonzero);
    default:
      return store_scaled<E5m2, U8, uchar4>(data, scale, base, from, keep_nonzero);
  }
}

// All lanes of the warp take part.
template <int kQuads>
__device__ __forceinline__ void store_segment(const FlatSegment& to, std::uint64_t group, int base,
                                              int count, const Mine<kQuads>& from,
                                              bool keep_nonzero) {
  U8* data = to.data + group * kGroupElements * item_bytes(to.storage);
  if constexpr (kQuads == 2) {
    if (is_scaled(to.storage)) {
      return store_any_scaled(to, data, group, base, from, keep_nonzero);
    }
  }
  if (to.storage == Storage::kBf16) {
    ToCode<Bf16, U16> convert;
    convert.keep_nonzero = keep_nonzero;
    store_items<U16, ushort4>(reinterpret_cast<U16*>(data), base, kGroupElements, from, convert);
  } else {
    store_element(data, Element::kFp32, base, count, from);
  }
}

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_GROUP_CUDA_CUH_
