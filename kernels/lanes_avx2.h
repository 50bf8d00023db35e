// Eight lanes. Included only by a source compiled for AVX2 and FMA: nothing here may be emitted
// into code that other processors run.
#ifndef MILLPOND_KERNELS_LANES_AVX2_H_
#define MILLPOND_KERNELS_LANES_AVX2_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/adam_math.h"

namespace millpond::kernels {

struct Bits8 {
  __m256i x;
  Bits8() = default;
  explicit MILLPOND_HD Bits8(__m256i value) : x(value) {}
  explicit MILLPOND_HD Bits8(std::int32_t value) : x(_mm256_set1_epi32(value)) {}
  template <int kCount>
  MILLPOND_HD Bits8 left() const {
    return Bits8(_mm256_slli_epi32(x, kCount));
  }
  template <int kCount>
  MILLPOND_HD Bits8 right() const {
    return Bits8(_mm256_srli_epi32(x, kCount));
  }
};
// A comparison's answer: all bits of a lane, or none.
struct Mask8 {
  __m256i x;
};
MILLPOND_HD Bits8 operator&(Bits8 a, Bits8 b) { return Bits8(_mm256_and_si256(a.x, b.x)); }
MILLPOND_HD Bits8 operator|(Bits8 a, Bits8 b) { return Bits8(_mm256_or_si256(a.x, b.x)); }
MILLPOND_HD Bits8 operator+(Bits8 a, Bits8 b) { return Bits8(_mm256_add_epi32(a.x, b.x)); }
MILLPOND_HD Bits8 operator-(Bits8 a, Bits8 b) { return Bits8(_mm256_sub_epi32(a.x, b.x)); }
MILLPOND_HD Mask8 greater(Bits8 a, Bits8 b) { return {_mm256_cmpgt_epi32(a.x, b.x)}; }
MILLPOND_HD Bits8 select(Mask8 condition, Bits8 yes, Bits8 no) {
  return Bits8(_mm256_blendv_epi8(no.x, yes.x, condition.x));
}
MILLPOND_HD Bits8 greatest(Bits8 a, Bits8 b) { return Bits8(_mm256_max_epi32(a.x, b.x)); }

struct Lanes8 {
  using Bits = Bits8;
  static constexpr int kLanes = 8;
  __m256 x;
  Lanes8() = default;
  explicit MILLPOND_HD Lanes8(__m256 value) : x(value) {}
  explicit MILLPOND_HD Lanes8(float value) : x(_mm256_set1_ps(value)) {}

  MILLPOND_HD Bits8 bits() const { return Bits8(_mm256_castps_si256(x)); }
  static MILLPOND_HD Lanes8 from_bits(Bits8 b) { return Lanes8(_mm256_castsi256_ps(b.x)); }
  static MILLPOND_HD Lanes8 load(const float* from) { return Lanes8(_mm256_loadu_ps(from)); }
  MILLPOND_HD void store(float* to) const { _mm256_storeu_ps(to, x); }
  static MILLPOND_HD Lanes8 load_part(const float* from, int count) {
    return Lanes8(_mm256_maskload_ps(from, first(count)));
  }
  MILLPOND_HD void store_part(float* to, int count) const {
    _mm256_maskstore_ps(to, first(count), x);
  }
  static MILLPOND_HD __m256i first(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static MILLPOND_HD Bits8 load16(const unsigned char* from) {
    return Bits8(_mm256_cvtepu16_epi32(
        _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(from)))));
  }
  static MILLPOND_HD Bits8 load8(const unsigned char* from) {
    return Bits8(_mm256_cvtepu8_epi32(
        _mm_loadl_epi64(static_cast<const __m128i*>(static_cast<const void*>(from)))));
  }
  static MILLPOND_HD __m128i pack16(Bits8 value) {
    return _mm_packus_epi32(_mm256_castsi256_si128(value.x), _mm256_extracti128_si256(value.x, 1));
  }
  static MILLPOND_HD void store16(Bits8 value, unsigned char* to) {
    _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(to)), pack16(value));
  }
  static MILLPOND_HD void store8(Bits8 value, unsigned char* to) {
    const __m128i packed = pack16(value);
    _mm_storel_epi64(static_cast<__m128i*>(static_cast<void*>(to)),
                     _mm_packus_epi16(packed, packed));
  }
  static MILLPOND_HD std::int32_t largest(Bits8 magnitudes) {
    __m128i r = _mm_max_epi32(_mm256_castsi256_si128(magnitudes.x),
                              _mm256_extracti128_si256(magnitudes.x, 1));
    r = _mm_max_epi32(r, _mm_shuffle_epi32(r, 0x4e));
    r = _mm_max_epi32(r, _mm_shuffle_epi32(r, 0xb1));
    return _mm_cvtsi128_si32(r);
  }
};
MILLPOND_HD Lanes8 operator+(Lanes8 a, Lanes8 b) { return Lanes8(_mm256_add_ps(a.x, b.x)); }
MILLPOND_HD Lanes8 operator-(Lanes8 a, Lanes8 b) { return Lanes8(_mm256_sub_ps(a.x, b.x)); }
MILLPOND_HD Lanes8 operator*(Lanes8 a, Lanes8 b) { return Lanes8(_mm256_mul_ps(a.x, b.x)); }
MILLPOND_HD Lanes8 operator/(Lanes8 a, Lanes8 b) { return Lanes8(_mm256_div_ps(a.x, b.x)); }
MILLPOND_HD Lanes8 operator-(Lanes8 a) { return Lanes8(_mm256_xor_ps(a.x, _mm256_set1_ps(-0.0F))); }
MILLPOND_HD Lanes8 fma(Lanes8 a, Lanes8 b, Lanes8 c) {
  return Lanes8(_mm256_fmadd_ps(a.x, b.x, c.x));
}
MILLPOND_HD Lanes8 square_root(Lanes8 a) { return Lanes8(_mm256_sqrt_ps(a.x)); }

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_LANES_AVX2_H_
