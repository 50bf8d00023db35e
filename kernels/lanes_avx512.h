// Sixteen lanes. Included only by a source compiled for AVX-512 (F, BW, VL, DQ) and FMA: nothing
// here may be emitted into code that other processors run.
#ifndef MILLPOND_KERNELS_LANES_AVX512_H_
#define MILLPOND_KERNELS_LANES_AVX512_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/adam_math.h"

namespace millpond::kernels {

struct Bits16 {
  __m512i x;
  Bits16() = default;
  explicit MILLPOND_HD Bits16(__m512i value) : x(value) {}
  explicit MILLPOND_HD Bits16(std::int32_t value) : x(_mm512_set1_epi32(value)) {}
  template <int kCount>
  MILLPOND_HD Bits16 left() const {
    return Bits16(_mm512_slli_epi32(x, kCount));
  }
  template <int kCount>
  MILLPOND_HD Bits16 right() const {
    return Bits16(_mm512_srli_epi32(x, kCount));
  }
};
MILLPOND_HD Bits16 operator&(Bits16 a, Bits16 b) { return Bits16(_mm512_and_si512(a.x, b.x)); }
MILLPOND_HD Bits16 operator|(Bits16 a, Bits16 b) { return Bits16(_mm512_or_si512(a.x, b.x)); }
MILLPOND_HD Bits16 operator+(Bits16 a, Bits16 b) { return Bits16(_mm512_add_epi32(a.x, b.x)); }
MILLPOND_HD Bits16 operator-(Bits16 a, Bits16 b) { return Bits16(_mm512_sub_epi32(a.x, b.x)); }
MILLPOND_HD __mmask16 greater(Bits16 a, Bits16 b) { return _mm512_cmpgt_epi32_mask(a.x, b.x); }
MILLPOND_HD Bits16 select(__mmask16 condition, Bits16 yes, Bits16 no) {
  return Bits16(_mm512_mask_mov_epi32(no.x, condition, yes.x));
}
MILLPOND_HD Bits16 greatest(Bits16 a, Bits16 b) { return Bits16(_mm512_max_epi32(a.x, b.x)); }

struct Lanes16 {
  using Bits = Bits16;
  static constexpr int kLanes = 16;
  __m512 x;
  Lanes16() = default;
  explicit MILLPOND_HD Lanes16(__m512 value) : x(value) {}
  explicit MILLPOND_HD Lanes16(float value) : x(_mm512_set1_ps(value)) {}

  MILLPOND_HD Bits16 bits() const { return Bits16(_mm512_castps_si512(x)); }
  static MILLPOND_HD Lanes16 from_bits(Bits16 b) { return Lanes16(_mm512_castsi512_ps(b.x)); }
  static MILLPOND_HD Lanes16 load(const float* from) { return Lanes16(_mm512_loadu_ps(from)); }
  MILLPOND_HD void store(float* to) const { _mm512_storeu_ps(to, x); }
  static MILLPOND_HD Lanes16 load_part(const float* from, int count) {
    return Lanes16(_mm512_maskz_loadu_ps(first(count), from));
  }
  MILLPOND_HD void store_part(float* to, int count) const {
    _mm512_mask_storeu_ps(to, first(count), x);
  }
  static MILLPOND_HD __mmask16 first(int count) {
    return static_cast<__mmask16>((1U << count) - 1U);
  }

  static MILLPOND_HD Bits16 load16(const unsigned char* from) {
    return Bits16(_mm512_cvtepu16_epi32(
        _mm256_loadu_si256(static_cast<const __m256i*>(static_cast<const void*>(from)))));
  }
  static MILLPOND_HD Bits16 load8(const unsigned char* from) {
    return Bits16(_mm512_cvtepu8_epi32(
        _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(from)))));
  }
  static MILLPOND_HD void store16(Bits16 value, unsigned char* to) {
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to)),
                        _mm512_cvtepi32_epi16(value.x));
  }
  static MILLPOND_HD void store8(Bits16 value, unsigned char* to) {
    _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(to)), _mm512_cvtepi32_epi8(value.x));
  }
  static MILLPOND_HD std::int32_t largest(Bits16 magnitudes) {
    return _mm512_reduce_max_epi32(magnitudes.x);
  }
};
MILLPOND_HD Lanes16 operator+(Lanes16 a, Lanes16 b) { return Lanes16(_mm512_add_ps(a.x, b.x)); }
MILLPOND_HD Lanes16 operator-(Lanes16 a, Lanes16 b) { return Lanes16(_mm512_sub_ps(a.x, b.x)); }
MILLPOND_HD Lanes16 operator*(Lanes16 a, Lanes16 b) { return Lanes16(_mm512_mul_ps(a.x, b.x)); }
MILLPOND_HD Lanes16 operator/(Lanes16 a, Lanes16 b) { return Lanes16(_mm512_div_ps(a.x, b.x)); }
MILLPOND_HD Lanes16 operator-(Lanes16 a) {
  return Lanes16(_mm512_xor_ps(a.x, _mm512_set1_ps(-0.0F)));
}
MILLPOND_HD Lanes16 fma(Lanes16 a, Lanes16 b, Lanes16 c) {
  return Lanes16(_mm512_fmadd_ps(a.x, b.x, c.x));
}
MILLPOND_HD Lanes16 square_root(Lanes16 a) { return Lanes16(_mm512_sqrt_ps(a.x)); }

// MKL's vsSqrt in its high-accuracy mode on AVX-512 processors: one Newton step from the 14-bit
// reciprocal square root, on a value scaled by 2^64 where its remainder would be subnormal.
// Compared with torch.sqrt on every fp32 value from 0 to infinity: the same bits.
struct MklRoot {
  static MILLPOND_HD Lanes16 root(Lanes16 value) {
    const __m512 v = value.x;
    const __mmask16 small = _mm512_cmp_ps_mask(v, _mm512_set1_ps(0x1p-80F), _CMP_LT_OQ);
    const __mmask16 own_root = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_EQ_OQ) |
                               _mm512_cmp_ps_mask(v, _mm512_set1_ps(__builtin_inff()), _CMP_EQ_OQ);
    const __m512 w = _mm512_mask_mul_ps(v, small, v, _mm512_set1_ps(0x1p64F));
    const __m512 y = _mm512_rsqrt14_ps(w);
    const __m512 s = _mm512_mul_ps(w, y);
    __m512 r =
        _mm512_fmadd_ps(_mm512_fnmadd_ps(s, s, w), _mm512_mul_ps(_mm512_set1_ps(0.5F), y), s);
    r = _mm512_mask_mul_ps(r, small, r, _mm512_set1_ps(0x1p-32F));
    return Lanes16(_mm512_mask_mov_ps(r, own_root, v));
  }
};

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_LANES_AVX512_H_
