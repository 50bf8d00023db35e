// Groups of 256 elements between stored bytes and fp32, and runs of parameters and gradients,
// vectorised over a lane type V. Included only by update_<processor>.cc, each with its own V.
#ifndef MILLPOND_KERNELS_GROUP_LOOP_H_
#define MILLPOND_KERNELS_GROUP_LOOP_H_

#include <cstdint>
#include <cstring>

#include "kernels/flat_run.h"
#include "kernels/small_float.h"

namespace millpond::kernels {

inline constexpr int kGroup = 256;
static_assert(kGroup == kGroupElements);

template <class V>
struct GroupLoop {
  template <int kBytes>
  static MILLPOND_HD typename V::Bits load_code(const unsigned char* from) {
    if constexpr (kBytes == 2) return V::load16(from);
    return V::load8(from);
  }
  template <int kBytes>
  static MILLPOND_HD void store_code(typename V::Bits code, unsigned char* to) {
    if constexpr (kBytes == 2) {
      V::store16(code, to);
    } else {
      V::store8(code, to);
    }
  }

  // `count` is a multiple of the lanes.
  template <class Format>
  static MILLPOND_HD void widen_whole(const unsigned char* from, float* to, int count) {
    for (int i = 0; i < count; i += V::kLanes) {
      Format::template decode<V>(V::load16(from + 2 * i)).store(to + i);
    }
  }
  template <class Format>
  static MILLPOND_HD void narrow_whole(const float* from, unsigned char* to, int count,
                                       bool keep_nonzero) {
    for (int i = 0; i < count; i += V::kLanes) {
      const V value = V::load(from + i);
      V::store16(Format::template encode<V>(value, value, keep_nonzero), to + 2 * i);
    }
  }

  template <class Format, int kBytes>
  static MILLPOND_HD void decode_scaled(const unsigned char* from, const unsigned char* scale_from,
                                        float* to) {
    float scale;
    memcpy(&scale, scale_from, sizeof scale);
    for (int i = 0; i < kGroup; i += V::kLanes) {
      (Format::template decode<V>(load_code<kBytes>(from + kBytes * i)) * V(scale)).store(to + i);
    }
  }
  template <class Format, int kBytes>
  static MILLPOND_HD void encode_scaled(const float* from, unsigned char* to,
                                        unsigned char* scale_to, bool keep_nonzero) {
    using Bits = typename V::Bits;
    Bits magnitudes(0);
    for (int i = 0; i < kGroup; i += V::kLanes) {
      magnitudes = greatest(magnitudes, V::load(from + i).bits() & Bits(0x7fffffff));
    }
    const std::int32_t exponent = scale_exponent<Format>(V::largest(magnitudes));
    const std::int32_t scale_bits = (127 + exponent) << 23;
    memcpy(scale_to, &scale_bits, sizeof scale_bits);
    const V inverse = V::from_bits(Bits((127 - exponent) << 23));
    for (int i = 0; i < kGroup; i += V::kLanes) {
      const V value = V::load(from + i);
      store_code<kBytes>(Format::template encode<V>(value * inverse, value, keep_nonzero),
                         to + kBytes * i);
    }
  }

  // Group `index` of a segment that is not fp32.
  static void decode_group(const FlatSegment& from, std::uint64_t index, float* to) {
    const unsigned char* data = from.data + index * kGroup * item_size(from.storage);
    const unsigned char* scale = from.scales == nullptr ? nullptr : from.scales + 4 * index;
    switch (from.storage) {
      case Storage::kFp32:
        memcpy(to, data, kGroup * sizeof(float));
        return;
      case Storage::kBf16:
        return widen_whole<Bf16>(data, to, kGroup);
      case Storage::kFp16Scaled:
        return decode_scaled<Fp16, 2>(data, scale, to);
      case Storage::kFp8E4m3Scaled:
        return decode_scaled<E4m3, 1>(data, scale, to);
      case Storage::kFp8E5m2Scaled:
        return decode_scaled<E5m2, 1>(data, scale, to);
    }
  }
  static void encode_group(const float* from, const FlatSegment& to, std::uint64_t index,
                           bool keep_nonzero) {
    unsigned char* data = to.data + index * kGroup * item_size(to.storage);
    unsigned char* scale = to.scales == nullptr ? nullptr : to.scales + 4 * index;
    switch (to.storage) {
      case Storage::kFp32:
        memcpy(data, from, kGroup * sizeof(float));
        return;
      case Storage::kBf16:
        return narrow_whole<Bf16>(from, data, kGroup, keep_nonzero);
      case Storage::kFp16Scaled:
        return encode_scaled<Fp16, 2>(from, data, scale, keep_nonzero);
      case Storage::kFp8E4m3Scaled:
        return encode_scaled<E4m3, 1>(from, data, scale, keep_nonzero);
      case Storage::kFp8E5m2Scaled:
        return encode_scaled<E5m2, 1>(from, data, scale, keep_nonzero);
    }
  }
  static MILLPOND_HD std::uint64_t item_size(Storage s) {
    return s == Storage::kFp32 ? 4 : s == Storage::kBf16 || s == Storage::kFp16Scaled ? 2 : 1;
  }

  // 16-bit parameters and gradients, at most a group of them; any alignment.
  template <class Format>
  static void widen16(const unsigned char* from, float* to, int count) {
    const int whole = count - count % V::kLanes;
    widen_whole<Format>(from, to, whole);
    if (whole == count) return;
    unsigned char padded[2 * V::kLanes] = {};
    float wide[V::kLanes];
    memcpy(padded, from + 2 * whole, 2 * (count - whole));
    widen_whole<Format>(padded, wide, V::kLanes);
    memcpy(to + whole, wide, sizeof(float) * (count - whole));
  }
  template <class Format>
  static void narrow16(const float* from, unsigned char* to, int count) {
    const int whole = count - count % V::kLanes;
    narrow_whole<Format>(from, to, whole, false);
    if (whole == count) return;
    unsigned char padded[2 * V::kLanes];
    float wide[V::kLanes] = {};
    memcpy(wide, from + whole, sizeof(float) * (count - whole));
    narrow_whole<Format>(wide, padded, V::kLanes, false);
    memcpy(to + 2 * whole, padded, 2 * (count - whole));
  }
  static void widen_part(const unsigned char* from, Element element, float* to, int count) {
    switch (element) {
      case Element::kFp32:
        memcpy(to, from, sizeof(float) * count);
        return;
      case Element::kBf16:
        return widen16<Bf16>(from, to, count);
      case Element::kFp16:
        return widen16<Fp16>(from, to, count);
    }
  }
  static void narrow_part(const float* from, unsigned char* to, Element element, int count) {
    switch (element) {
      case Element::kFp32:
        memcpy(to, from, sizeof(float) * count);
        return;
      case Element::kBf16:
        return narrow16<Bf16>(from, to, count);
      case Element::kFp16:
        return narrow16<Fp16>(from, to, count);
    }
  }

  static MILLPOND_HD int part_of(std::uint64_t left) {
    return left < kGroup ? static_cast<int>(left) : kGroup;
  }
  static MILLPOND_HD std::uint64_t element_size(Element e) { return e == Element::kFp32 ? 4 : 2; }

  static void decode(const FlatSegment& from, float* to, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; i += kGroup) {
      const int n = part_of(count - i);
      if (n == kGroup) {
        decode_group(from, i / kGroup, to + i);
      } else {
        float wide[kGroup];
        decode_group(from, i / kGroup, wide);
        memcpy(to + i, wide, sizeof(float) * n);
      }
    }
  }
  static void encode(const float* from, const FlatSegment& to, std::uint64_t count,
                     bool keep_nonzero) {
    for (std::uint64_t i = 0; i < count; i += kGroup) {
      const int n = part_of(count - i);
      if (n == kGroup) {
        encode_group(from + i, to, i / kGroup, keep_nonzero);
      } else {
        float wide[kGroup] = {};
        memcpy(wide, from + i, sizeof(float) * n);
        encode_group(wide, to, i / kGroup, keep_nonzero);
      }
    }
  }
  static void widen(const unsigned char* from, Element element, float* to, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; i += kGroup) {
      widen_part(from + element_size(element) * i, element, to + i, part_of(count - i));
    }
  }
  static void narrow(const float* from, unsigned char* to, Element element, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; i += kGroup) {
      narrow_part(from + i, to + element_size(element) * i, element, part_of(count - i));
    }
  }
};

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_GROUP_LOOP_H_
