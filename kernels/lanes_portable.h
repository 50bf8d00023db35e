// One lane: a float of the host or of a CUDA device, with the operations that adam_math.h and
// small_float.h ask for. The wider lane types (lanes_avx2.h, lanes_avx512.h) have the same members,
// so they give the same bits. C++17.
#ifndef MILLPOND_KERNELS_LANES_PORTABLE_H_
#define MILLPOND_KERNELS_LANES_PORTABLE_H_

#include <cstdint>
#include <cstring>

#include "kernels/adam_math.h"

namespace millpond::kernels {

// 32 bits, unsigned so that carries may run out of the top; compared as signed numbers.
struct LaneBits {
  std::uint32_t x;
  LaneBits() = default;
  explicit MILLPOND_HD LaneBits(std::int32_t value) : x(static_cast<std::uint32_t>(value)) {}
  template <int kCount>
  MILLPOND_HD LaneBits left() const {
    return of(x << kCount);
  }
  template <int kCount>
  MILLPOND_HD LaneBits right() const {
    return of(x >> kCount);
  }
  static MILLPOND_HD LaneBits of(std::uint32_t bits) {
    LaneBits r;
    r.x = bits;
    return r;
  }
};
MILLPOND_HD LaneBits operator&(LaneBits a, LaneBits b) { return LaneBits::of(a.x & b.x); }
MILLPOND_HD LaneBits operator|(LaneBits a, LaneBits b) { return LaneBits::of(a.x | b.x); }
MILLPOND_HD LaneBits operator+(LaneBits a, LaneBits b) { return LaneBits::of(a.x + b.x); }
MILLPOND_HD LaneBits operator-(LaneBits a, LaneBits b) { return LaneBits::of(a.x - b.x); }
MILLPOND_HD bool greater(LaneBits a, LaneBits b) {
  return static_cast<std::int32_t>(a.x) > static_cast<std::int32_t>(b.x);
}
MILLPOND_HD LaneBits select(bool condition, LaneBits yes, LaneBits no) {
  return condition ? yes : no;
}

struct Lane {
  using Bits = LaneBits;
  static constexpr int kLanes = 1;
  float x;
  Lane() = default;
  explicit MILLPOND_HD Lane(float value) : x(value) {}

  MILLPOND_HD LaneBits bits() const {
    std::uint32_t r;
    memcpy(&r, &x, sizeof r);
    return LaneBits::of(r);
  }
  static MILLPOND_HD Lane from_bits(LaneBits bits) {
    Lane r;
    memcpy(&r.x, &bits.x, sizeof r.x);
    return r;
  }
  static MILLPOND_HD Lane load(const float* from) {
    Lane r;
    memcpy(&r.x, from, sizeof r.x);
    return r;
  }
  MILLPOND_HD void store(float* to) const { memcpy(to, &x, sizeof x); }
  // Of fewer lanes than there are: for one lane, none.
  static MILLPOND_HD Lane load_part(const float*, int) { return Lane(0.0F); }
  MILLPOND_HD void store_part(float*, int) const {}

  static MILLPOND_HD LaneBits load16(const unsigned char* from) {
    std::uint16_t r;
    memcpy(&r, from, sizeof r);
    return LaneBits::of(r);
  }
  static MILLPOND_HD LaneBits load8(const unsigned char* from) { return LaneBits::of(*from); }
  static MILLPOND_HD void store16(LaneBits value, unsigned char* to) {
    const auto r = static_cast<std::uint16_t>(value.x);
    memcpy(to, &r, sizeof r);
  }
  static MILLPOND_HD void store8(LaneBits value, unsigned char* to) {
    *to = static_cast<unsigned char>(value.x);
  }
  // The largest of the lanes' magnitudes, as fp32 bits.
  static MILLPOND_HD std::int32_t largest(LaneBits magnitudes) {
    return static_cast<std::int32_t>(magnitudes.x);
  }
};
MILLPOND_HD LaneBits greatest(LaneBits a, LaneBits b) { return greater(a, b) ? a : b; }

#if defined(__CUDA_ARCH__)
MILLPOND_HD Lane operator+(Lane a, Lane b) { return Lane(__fadd_rn(a.x, b.x)); }
MILLPOND_HD Lane operator-(Lane a, Lane b) { return Lane(__fsub_rn(a.x, b.x)); }
MILLPOND_HD Lane operator*(Lane a, Lane b) { return Lane(__fmul_rn(a.x, b.x)); }
MILLPOND_HD Lane operator/(Lane a, Lane b) { return Lane(__fdiv_rn(a.x, b.x)); }
MILLPOND_HD Lane fma(Lane a, Lane b, Lane c) { return Lane(__fmaf_rn(a.x, b.x, c.x)); }
MILLPOND_HD Lane square_root(Lane a) { return Lane(__fsqrt_rn(a.x)); }
#else
MILLPOND_HD Lane operator+(Lane a, Lane b) { return Lane(a.x + b.x); }
MILLPOND_HD Lane operator-(Lane a, Lane b) { return Lane(a.x - b.x); }
MILLPOND_HD Lane operator*(Lane a, Lane b) { return Lane(a.x * b.x); }
MILLPOND_HD Lane operator/(Lane a, Lane b) { return Lane(a.x / b.x); }
MILLPOND_HD Lane fma(Lane a, Lane b, Lane c) { return Lane(__builtin_fmaf(a.x, b.x, c.x)); }
MILLPOND_HD Lane square_root(Lane a) { return Lane(__builtin_sqrtf(a.x)); }
#endif
MILLPOND_HD Lane operator-(Lane a) { return Lane(-a.x); }

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_LANES_PORTABLE_H_
