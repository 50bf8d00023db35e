// The 16-bit and 8-bit floats, once, for every processor: templates over a lane type V (see
// lanes_portable.h). Conversions round to nearest, ties to even, whatever the exponent; subnormals
// are exact; a NaN stays a NaN with its sign, its payload becomes the quiet bit alone. C++17.
#ifndef MILLPOND_KERNELS_SMALL_FLOAT_H_
#define MILLPOND_KERNELS_SMALL_FLOAT_H_

#include <cstdint>

#include "kernels/adam_math.h"

namespace millpond::kernels {

// kFiniteOnly: no infinities, the all-ones magnitude is NaN, what is too large becomes NaN.
template <int kExponentBits, int kMantissaBits, bool kFiniteOnly>
struct SmallFloat {
  static constexpr int kDropped = 23 - kMantissaBits;  // mantissa bits that fp32 has more
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr bool kWideExponent = kExponentBits == 8;
  static constexpr int kSignShift = 31 - (kExponentBits + kMantissaBits);
  static constexpr std::int32_t kExponentMask = ((1 << kExponentBits) - 1) << kMantissaBits;
  // Codes of magnitudes.
  static constexpr std::int32_t kAllOnes = (1 << (kExponentBits + kMantissaBits)) - 1;
  static constexpr std::int32_t kNan =
      kFiniteOnly ? kAllOnes : kExponentMask | 1 << (kMantissaBits - 1);
  static constexpr std::int32_t kOverflow = kFiniteOnly ? kAllOnes : kExponentMask;
  // fp32 bits: the smallest normal magnitude, and a number whose last place is the smallest
  // subnormal.
  static constexpr std::int32_t kSmallestNormal = (127 - kBias + 1) << 23;
  static constexpr std::int32_t kMagic = (127 - kBias + 1 - kMantissaBits + 23) << 23;
  // The largest finite value is 2^kTopExponent times a mantissa with the bits kTopMantissa (fp32's
  // 23).
  static constexpr int kTopExponent = kFiniteOnly ? kBias + 1 : kBias;
  static constexpr std::int32_t kTopMantissa =
      ((kFiniteOnly ? (1 << kMantissaBits) - 2 : (1 << kMantissaBits) - 1) << kDropped);

  // The code of `value`. keep_nonzero: where `original` is not zero the code is neither.
  template <class V>
  static MILLPOND_HD typename V::Bits encode(V value, V original, bool keep_nonzero) {
    using Bits = typename V::Bits;
    const Bits all = value.bits();
    const Bits magnitude = all & Bits(0x7fffffff);
    const Bits odd = magnitude.template right<kDropped>() & Bits(1);
    Bits code = (magnitude + odd + Bits((1 << (kDropped - 1)) - 1)).template right<kDropped>();
    if constexpr (!kWideExponent) {
      code = code - Bits((127 - kBias) << kMantissaBits);
      const V magic = V::from_bits(Bits(kMagic));
      const Bits subnormal = (V::from_bits(magnitude) + magic).bits() - Bits(kMagic);
      code = select(greater(Bits(kSmallestNormal), magnitude), subnormal, code);
      code = select(greater(code, Bits(kOverflow)), Bits(kOverflow), code);
    }
    code = select(greater(magnitude, Bits(0x7f800000)), Bits(kNan), code);
    if (keep_nonzero) {
      const Bits nonzero = original.bits() & Bits(0x7fffffff);
      code = select(greater(Bits(1), code), select(greater(nonzero, Bits(0)), Bits(1), code), code);
    }
    return code | (all.template right<kSignShift>() & Bits(1 << (kExponentBits + kMantissaBits)));
  }

  template <class V>
  static MILLPOND_HD V decode(typename V::Bits code) {
    using Bits = typename V::Bits;
    if constexpr (kWideExponent) {
      return V::from_bits(code.template left<kDropped>());
    } else {
      const Bits magnitude = code & Bits(kAllOnes);
      const Bits sign =
          (code & Bits(1 << (kExponentBits + kMantissaBits))).template left<kSignShift>();
      // Read as fp32 the exponent is too small by the difference of the biases.
      const V rebias = V::from_bits(Bits((127 + 127 - kBias) << 23));
      Bits result = (V::from_bits(magnitude.template left<kDropped>()) * rebias).bits();
      if constexpr (kFiniteOnly) {
        result = select(greater(magnitude, Bits(kAllOnes - 1)), Bits(0x7fc00000), result);
      } else {
        result = select(greater(magnitude, Bits(kExponentMask - 1)),
                        magnitude.template left<kDropped>() | Bits(0x7f800000), result);
      }
      return V::from_bits(result | sign);
    }
  }
};

using Bf16 = SmallFloat<8, 7, false>;
using Fp16 = SmallFloat<5, 10, false>;
using E4m3 = SmallFloat<4, 3, true>;
using E5m2 = SmallFloat<5, 2, false>;

// The exponent k of a group's scale 2^k from the fp32 bits of its largest magnitude: the smallest
// with which that magnitude is finite in Format; 0 for a group of zeros and for one with infinity
// or NaN. Never below -126, so that the scale is a normal number; never above 120, so that its
// inverse is.
template <class Format>
MILLPOND_HD std::int32_t scale_exponent(std::int32_t largest) {
  if (largest == 0 || largest >= 0x7f800000) return 0;
  const std::int32_t exponent = (largest >> 23) - 127 - Format::kTopExponent +
                                ((largest & 0x7fffff) > Format::kTopMantissa ? 1 : 0);
  return exponent < -126 ? -126 : exponent;
}

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_SMALL_FLOAT_H_
