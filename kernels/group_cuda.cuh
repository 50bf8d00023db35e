// Groups of 256 elements on a CUDA device: a warp has a group or half of one, each of its 32 lanes
// quads of elements, lane * 4 and 128 + lane * 4. A quad is loaded as it is stored and decoded
// later, so that all loads of a group are on their way before the first of them is waited for.
#ifndef MILLPOND_KERNELS_GROUP_CUDA_CUH_
#define MILLPOND_KERNELS_GROUP_CUDA_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/flat_run.h"
#include "kernels/lanes_portable.h"
#include "kernels/small_float.h"

namespace millpond::kernels {

using U8 = unsigned char;
using U16 = unsigned short;
using U32 = unsigned int;

// Four neighbouring elements as they are stored: a word each, or codes of 16 bits two a word, or
// four of 8 bits in the first.
struct Codes {
  U32 word[4];
};

// The elements of a lane: kQuads times four.
template <int kQuads>
struct Stored {
  Codes quad[kQuads];
};
template <int kQuads>
struct Mine {
  static constexpr int kCount = 4 * kQuads;
  Lane x[kCount];
};

// Where a lane's quad is in its group: `base` is lane * 4, and 128 more in the second half.
__device__ __forceinline__ int place_of(int base, int quad) { return base + quad * 128; }

__device__ __forceinline__ bool quad_aligned(const U8* quad, std::uint64_t item) {
  return reinterpret_cast<std::uintptr_t>(quad) % (4 * item) == 0;
}

// `item`: bytes of a code, 4, 2 or 1. Aligned.
__device__ __forceinline__ Codes load_whole_quad(const U8* from, std::uint64_t item) {
  Codes codes = {};
  if (item == 4) {
    const uint4 words = __ldcs(reinterpret_cast<const uint4*>(from));
    codes = {{words.x, words.y, words.z, words.w}};
  } else if (item == 2) {
    const uint2 words = __ldcs(reinterpret_cast<const uint2*>(from));
    codes.word[0] = words.x;
    codes.word[1] = words.y;
  } else {
    codes.word[0] = __ldcs(reinterpret_cast<const U32*>(from));
  }
  return codes;
}

// `left`: how many of the four there are; the others are zero. Wherever codes of 4 or 2 bytes may
// lie.
__device__ __forceinline__ Codes load_quad(const U8* from, std::uint64_t item, int left) {
  if (left >= 4 && quad_aligned(from, item)) return load_whole_quad(from, item);
  Codes codes = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (k >= left) continue;
    if (item == 4) {
      codes.word[k] = reinterpret_cast<const U32*>(from)[k];
    } else {
      codes.word[k / 2] |= U32{reinterpret_cast<const U16*>(from)[k]} << k % 2 * 16;
    }
  }
  return codes;
}

__device__ __forceinline__ void store_whole_quad(U8* to, std::uint64_t item, const Codes& codes) {
  if (item == 4) {
    __stcs(reinterpret_cast<uint4*>(to),
           make_uint4(codes.word[0], codes.word[1], codes.word[2], codes.word[3]));
  } else if (item == 2) {
    __stcs(reinterpret_cast<uint2*>(to), make_uint2(codes.word[0], codes.word[1]));
  } else {
    __stcs(reinterpret_cast<U32*>(to), codes.word[0]);
  }
}

__device__ __forceinline__ void store_quad(U8* to, std::uint64_t item, int left,
                                           const Codes& codes) {
  if (left >= 4 && quad_aligned(to, item)) return store_whole_quad(to, item, codes);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (k >= left) continue;
    if (item == 4) {
      reinterpret_cast<U32*>(to)[k] = codes.word[k];
    } else {
      reinterpret_cast<U16*>(to)[k] = static_cast<U16>(codes.word[k / 2] >> k % 2 * 16);
    }
  }
}

template <class Format>
__device__ __forceinline__ void decode_16(const Codes& codes, Lane* to) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const U32 code = codes.word[k / 2] >> k % 2 * 16 & 0xffffU;
    to[k] = Format::template decode<Lane>(LaneBits::of(code));
  }
}
template <>
__device__ __forceinline__ void decode_16<Bf16>(const Codes& codes, Lane* to) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const U32 word = codes.word[k / 2];
    to[k] = Lane::from_bits(LaneBits::of(k % 2 == 0 ? word << 16 : word & 0xffff0000U));
  }
}
template <class Format>
__device__ __forceinline__ void decode_8(const Codes& codes, Lane* to) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    to[k] = Format::template decode<Lane>(LaneBits::of(codes.word[0] >> k * 8 & 0xffU));
  }
}

__device__ __forceinline__ void decode_quad(const Codes& codes, Element element, Lane* to) {
  switch (element) {
    case Element::kFp32:
#pragma unroll
      for (int k = 0; k < 4; ++k) to[k] = Lane::from_bits(LaneBits::of(codes.word[k]));
      return;
    case Element::kBf16:
      return decode_16<Bf16>(codes, to);
    case Element::kFp16:
      return decode_16<Fp16>(codes, to);
  }
}

// The device's own conversion of two numbers that are no NaN: rounded to nearest, ties to even.
template <class Format>
__device__ __forceinline__ U32 round_pair(Lane low, Lane high);
template <>
__device__ __forceinline__ U32 round_pair<Bf16>(Lane low, Lane high) {
  U32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high.x), "f"(low.x));
  return pair;
}
template <>
__device__ __forceinline__ U32 round_pair<Fp16>(Lane low, Lane high) {
  U32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high.x), "f"(low.x));
  return pair;
}

// What an encoding does besides rounding: values times `inverse`, and never zero for what is not.
struct Encoding {
  Lane inverse = Lane(1.0F);
  bool scaled = false;
  bool keep_nonzero = false;
  template <class Format>
  __device__ __forceinline__ U32 code(Lane x) const {
    return Format::template encode<Lane>(scaled ? x * inverse : x, x, keep_nonzero).x;
  }
};

template <class Format>
__device__ __forceinline__ Codes encode_16_by_one(const Lane* from, const Encoding& how) {
  Codes codes = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    codes.word[k / 2] |= how.code<Format>(from[k]) << k % 2 * 16;
  }
  return codes;
}

// Numbers that the device's own conversion encodes as wanted: no NaN, and where keep_nonzero counts
// nothing that would vanish in bf16: magnitudes with the bits 1 to 0x8000.
template <int kQuads>
__device__ __forceinline__ bool no_nan(const Mine<kQuads>& v) {
  bool nan = false;
#pragma unroll
  for (int k = 0; k < Mine<kQuads>::kCount; ++k) nan |= v.x[k].x != v.x[k].x;
  return !nan;
}
template <int kQuads>
__device__ __forceinline__ bool none_vanishes(const Mine<kQuads>& v) {
  U32 least = 0xffffffffU;
#pragma unroll
  for (int k = 0; k < Mine<kQuads>::kCount; ++k) least = min(least, v.x[k].bits().x * 2 - 2);
  return least >= 0xffffU;
}

// kPlain: the device's own conversion is right for all four, else each is looked at.
template <bool kPlain, class Format>
__device__ __forceinline__ Codes encode_plain_16(const Lane* from, bool keep_nonzero) {
  if constexpr (kPlain) {
    return {{round_pair<Format>(from[0], from[1]), round_pair<Format>(from[2], from[3]), 0, 0}};
  }
  Encoding how;
  how.keep_nonzero = keep_nonzero;
  return encode_16_by_one<Format>(from, how);
}

template <bool kPlain>
__device__ __forceinline__ Codes encode_quad(const Lane* from, Element element,
                                             bool keep_nonzero = false) {
  switch (element) {
    case Element::kBf16:
      return encode_plain_16<kPlain, Bf16>(from, keep_nonzero);
    case Element::kFp16:
      return encode_plain_16<kPlain, Fp16>(from, false);
    default:
      return {{from[0].bits().x, from[1].bits().x, from[2].bits().x, from[3].bits().x}};
  }
}

template <class Format>
__device__ __forceinline__ Codes encode_8(const Lane* from, const Encoding& how) {
  Codes codes = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) codes.word[0] |= how.code<Format>(from[k]) << k * 8;
  return codes;
}

// Elements of a shard's array, of which the group has `count`.
template <int kQuads>
__device__ __forceinline__ Stored<kQuads> load_elements(const U8* from, Element element, int base,
                                                        int count) {
  const std::uint64_t item = item_bytes(element);
  Stored<kQuads> stored;
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int place = place_of(base, q);
    stored.quad[q] = load_quad(from + place * item, item, count - place);
  }
  return stored;
}
template <int kQuads>
__device__ __forceinline__ Mine<kQuads> decode_elements(const Stored<kQuads>& stored,
                                                        Element element) {
  Mine<kQuads> mine;
#pragma unroll
  for (int q = 0; q < kQuads; ++q) decode_quad(stored.quad[q], element, mine.x + 4 * q);
  return mine;
}
template <bool kPlain, int kQuads>
__device__ __forceinline__ void store_elements(U8* to, Element element, int base, int count,
                                               const Mine<kQuads>& from) {
  const std::uint64_t item = item_bytes(element);
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int place = place_of(base, q);
    store_quad(to + place * item, item, count - place,
               encode_quad<kPlain>(from.x + 4 * q, element));
  }
}

// A group of a segment. `scale` is NULL for formats without.
struct GroupSegment {
  U8* data;
  float* scale;
  Storage storage;
};

// Groups of a segment are whole in memory and aligned, whatever a shard has of them.
template <int kQuads>
__device__ __forceinline__ Stored<kQuads> load_segment(const GroupSegment& from, int base) {
  const std::uint64_t item = item_bytes(from.storage);
  Stored<kQuads> stored;
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    stored.quad[q] = load_whole_quad(from.data + place_of(base, q) * item, item);
  }
  return stored;
}

template <bool kScaled, int kQuads>
__device__ __forceinline__ Mine<kQuads> decode_segment(const Stored<kQuads>& stored,
                                                       const GroupSegment& from) {
  if constexpr (kScaled) {
    if (is_scaled(from.storage)) {
      const Lane scale(*from.scale);
      Mine<kQuads> mine;
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        Lane* const to = mine.x + 4 * q;
        switch (from.storage) {
          case Storage::kFp16Scaled:
            decode_16<Fp16>(stored.quad[q], to);
            break;
          case Storage::kFp8E4m3Scaled:
            decode_8<E4m3>(stored.quad[q], to);
            break;
          default:
            decode_8<E5m2>(stored.quad[q], to);
        }
      }
#pragma unroll
      for (int k = 0; k < Mine<kQuads>::kCount; ++k) mine.x[k] = mine.x[k] * scale;
      return mine;
    }
  }
  return decode_elements(stored, from.storage == Storage::kBf16 ? Element::kBf16 : Element::kFp32);
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

template <class Format, int kItem, int kQuads>
__device__ __forceinline__ void store_scaled(const GroupSegment& to, int base,
                                             const Mine<kQuads>& from, bool keep_nonzero) {
  const std::int32_t exponent = scale_exponent<Format>(largest_of_group(from));
  if (base == 0) *to.scale = Lane::from_bits(LaneBits((127 + exponent) << 23)).x;
  Encoding how;
  how.inverse = Lane::from_bits(LaneBits((127 - exponent) << 23));
  how.scaled = true;
  how.keep_nonzero = keep_nonzero;
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const Lane* const quad = from.x + 4 * q;
    Codes codes;
    if constexpr (kItem == 2) {
      codes = encode_16_by_one<Format>(quad, how);
    } else {
      codes = encode_8<Format>(quad, how);
    }
    store_whole_quad(to.data + place_of(base, q) * kItem, kItem, codes);
  }
}

// All lanes of the warp take part. fp32 is not written behind the run's end, other formats in whole
// groups.
template <bool kScaled, bool kPlain, int kQuads>
__device__ __forceinline__ void store_segment(const GroupSegment& to, int base, int count,
                                              const Mine<kQuads>& from, bool keep_nonzero) {
  if constexpr (kScaled) {
    switch (to.storage) {
      case Storage::kFp16Scaled:
        return store_scaled<Fp16, 2>(to, base, from, keep_nonzero);
      case Storage::kFp8E4m3Scaled:
        return store_scaled<E4m3, 1>(to, base, from, keep_nonzero);
      case Storage::kFp8E5m2Scaled:
        return store_scaled<E5m2, 1>(to, base, from, keep_nonzero);
      default:
        break;
    }
  }
  if (to.storage == Storage::kFp32) {
    return store_elements<true>(to.data, Element::kFp32, base, count, from);
  }
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    store_whole_quad(to.data + place_of(base, q) * 2, 2,
                     encode_quad<kPlain>(from.x + 4 * q, Element::kBf16, keep_nonzero));
  }
}

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_GROUP_CUDA_CUH_
