// Groups of 256 elements on a CUDA device: a warp has a group, each of its 32 lanes eight elements
// in two quads, lane * 4 and 128 + lane * 4, so that fp32 moves in accesses of 16 bytes.
#ifndef MILLPOND_KERNELS_GROUP_CUDA_CUH_
#define MILLPOND_KERNELS_GROUP_CUDA_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/flat_run.h"
#include "kernels/lanes_portable.h"
#include "kernels/small_float.h"

namespace millpond::kernels {

constexpr int kMine = 8;  // elements of a lane

struct Mine {
  Lane x[kMine];
};

// Element k of this lane, in its group.
__device__ __forceinline__ int place_of(int lane, int k) {
  return (k / 4) * 128 + lane * 4 + k % 4;
}

template <class T>
__device__ __forceinline__ bool quad_aligned(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % (4 * sizeof(T)) == 0;
}

// Elements of T as numbers: quads where the address allows and the group is whole, else one by one.
// Behind `count` they are zero.
template <class T, class Quad, class Convert>
__device__ __forceinline__ void load_items(const T* from, int lane, int count, Mine& to,
                                           Convert convert) {
  if (count == static_cast<int>(kGroupElements) && quad_aligned(from)) {
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const Quad quad = __ldcs(reinterpret_cast<const Quad*>(from + place_of(lane, 4 * q)));
      to.x[4 * q] = convert(quad.x);
      to.x[4 * q + 1] = convert(quad.y);
      to.x[4 * q + 2] = convert(quad.z);
      to.x[4 * q + 3] = convert(quad.w);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kMine; ++k) {
      const int place = place_of(lane, k);
      to.x[k] = place < count ? convert(from[place]) : Lane(0.0F);
    }
  }
}

template <class T, class Quad, class Convert>
__device__ __forceinline__ void store_items(T* to, int lane, int count, const Mine& from,
                                            Convert convert) {
  if (count == static_cast<int>(kGroupElements) && quad_aligned(to)) {
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      Quad quad;
      quad.x = convert(from.x[4 * q]);
      quad.y = convert(from.x[4 * q + 1]);
      quad.z = convert(from.x[4 * q + 2]);
      quad.w = convert(from.x[4 * q + 3]);
      __stcs(reinterpret_cast<Quad*>(to + place_of(lane, 4 * q)), quad);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kMine; ++k) {
      const int place = place_of(lane, k);
      if (place < count) to[place] = convert(from.x[k]);
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

__device__ __forceinline__ void load_element(const U8* from, Element element, int lane, int count,
                                             Mine& to) {
  switch (element) {
    case Element::kFp32:
      return load_items<float, float4>(reinterpret_cast<const float*>(from), lane, count, to,
                                       FromFloat());
    case Element::kBf16:
      return load_items<U16, ushort4>(reinterpret_cast<const U16*>(from), lane, count, to,
                                      FromCode<Bf16>());
    case Element::kFp16:
      return load_items<U16, ushort4>(reinterpret_cast<const U16*>(from), lane, count, to,
                                      FromCode<Fp16>());
  }
}

__device__ __forceinline__ void store_element(U8* to, Element element, int lane, int count,
                                              const Mine& from) {
  switch (element) {
    case Element::kFp32:
      return store_items<float, float4>(reinterpret_cast<float*>(to), lane, count, from, ToFloat());
    case Element::kBf16:
      return store_items<U16, ushort4>(reinterpret_cast<U16*>(to), lane, count, from,
                                       ToCode<Bf16, U16>());
    case Element::kFp16:
      return store_items<U16, ushort4>(reinterpret_cast<U16*>(to), lane, count, from,
                                       ToCode<Fp16, U16>());
  }
}

template <class Format, class T, class Quad>
__device__ __forceinline__ void load_scaled(const U8* data, float scale, int lane, Mine& to) {
  FromCode<Format> convert;
  convert.scale = Lane(scale);
  convert.scaled = true;
  load_items<T, Quad>(reinterpret_cast<const T*>(data), lane, kGroupElements, to, convert);
}

// Stored groups are whole in memory, but for fp32, which is updated in place and not written behind
// the run's end.
__device__ __forceinline__ void load_segment(const FlatSegment& from, std::uint64_t group, int lane,
                                             int count, Mine& to) {
  const U8* data = from.data + group * kGroupElements * item_bytes(from.storage);
  const float scale =
      is_scaled(from.storage) ? reinterpret_cast<const float*>(from.scales)[group] : 1.0F;
  switch (from.storage) {
    case Storage::kFp32:
      return load_element(data, Element::kFp32, lane, count, to);
    case Storage::kBf16:
      return load_element(data, Element::kBf16, lane, kGroupElements, to);
    case Storage::kFp16Scaled:
      return load_scaled<Fp16, U16, ushort4>(data, scale, lane, to);
    case Storage::kFp8E4m3Scaled:
      return load_scaled<E4m3, U8, uchar4>(data, scale, lane, to);
    case Storage::kFp8E5m2Scaled:
      return load_scaled<E5m2, U8, uchar4>(data, scale, lane, to);
  }
}

__device__ __forceinline__ std::int32_t largest_of_group(const Mine& values) {
  std::int32_t largest = 0;
#pragma unroll
  for (int k = 0; k < kMine; ++k) {
    largest = max(largest, static_cast<std::int32_t>(values.x[k].bits().x & 0x7fffffffU));
  }
  return __reduce_max_sync(0xffffffffU, largest);
}

template <class Format, class T, class Quad>
__device__ __forceinline__ void store_scaled(U8* data, float* scale, int lane, const Mine& from,
                                             bool keep_nonzero) {
  const std::int32_t exponent = scale_exponent<Format>(largest_of_group(from));
  if (lane == 0) *scale = Lane::from_bits(LaneBits((127 + exponent) << 23)).x;
  ToCode<Format, T> convert;
  convert.inverse = Lane::from_bits(LaneBits((127 - exponent) << 23));
  convert.scaled = true;
  convert.keep_nonzero = keep_nonzero;
  store_items<T, Quad>(reinterpret_cast<T*>(data), lane, kGroupElements, from, convert);
}

// All lanes of the warp take part.
__device__ __forceinline__ void store_segment(const FlatSegment& to, std::uint64_t group, int lane,
                                              int count, const Mine& from, bool keep_nonzero) {
  U8* data = to.data + group * kGroupElements * item_bytes(to.storage);
  float* scale = is_scaled(to.storage) ? reinterpret_cast<float*>(to.scales) + group : nullptr;
  switch (to.storage) {
    case Storage::kFp32:
      return store_element(data, Element::kFp32, lane, count, from);
    case Storage::kBf16: {
      ToCode<Bf16, U16> convert;
      convert.keep_nonzero = keep_nonzero;
      return store_items<U16, ushort4>(reinterpret_cast<U16*>(data), lane, kGroupElements, from,
                                       convert);
    }
    case Storage::kFp16Scaled:
      return store_scaled<Fp16, U16, ushort4>(data, scale, lane, from, keep_nonzero);
    case Storage::kFp8E4m3Scaled:
      return store_scaled<E4m3, U8, uchar4>(data, scale, lane, from, keep_nonzero);
    case Storage::kFp8E5m2Scaled:
      return store_scaled<E5m2, U8, uchar4>(data, scale, lane, from, keep_nonzero);
  }
}

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_GROUP_CUDA_CUH_
