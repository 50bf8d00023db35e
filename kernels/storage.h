// Formats in which a segment's elements are stored, and the size of a block of them. Everything
// that touches stored bytes asks here; nothing assumes 4 bytes an element. Shared by CPU and CUDA
// code; C++17, no dependencies.
#ifndef MILLPOND_KERNELS_STORAGE_H_
#define MILLPOND_KERNELS_STORAGE_H_

#include <cstdint>

namespace millpond::kernels {

// Elements that share one fp32 scale, and the alignment of every shard's start in its bucket.
inline constexpr std::uint64_t kGroupElements = 256;
inline constexpr std::uint64_t kPageBytes = 4096;

// Names in manifests and options: see storage_name.
enum class Storage : std::uint8_t { kFp32, kBf16, kFp16Scaled, kFp8E4m3Scaled, kFp8E5m2Scaled };

// Formats of model parameters and gradients.
enum class Element : std::uint8_t { kFp32, kBf16, kFp16 };

constexpr std::uint64_t item_bytes(Storage s) {
  return s == Storage::kFp32 ? 4 : s == Storage::kBf16 || s == Storage::kFp16Scaled ? 2 : 1;
}
constexpr bool is_scaled(Storage s) { return s >= Storage::kFp16Scaled; }
constexpr std::uint64_t item_bytes(Element e) { return e == Element::kFp32 ? 4 : 2; }

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Where the scales of a block of `elements` (a multiple of kGroupElements) begin, in bytes from the
// block's start: element i is at i * item_bytes, the fp32 scale of its group at scale_offset + i /
// 256 * 4.
constexpr std::uint64_t scale_offset(Storage s, std::uint64_t elements) {
  return elements * item_bytes(s);
}

// Bytes of a block of `elements` (a multiple of kGroupElements): payload, scales, zero padding to
// whole pages.
constexpr std::uint64_t block_bytes(Storage s, std::uint64_t elements) {
  return round_up(elements * item_bytes(s) + (is_scaled(s) ? elements / kGroupElements * 4 : 0),
                  kPageBytes);
}

// Bytes of `elements` (a multiple of kGroupElements) cut into blocks of `block_elements`, the last
// one shorter.
constexpr std::uint64_t run_bytes(Storage s, std::uint64_t elements, std::uint64_t block_elements) {
  const std::uint64_t tail = elements % block_elements;
  return elements / block_elements * block_bytes(s, block_elements) +
         (tail != 0 ? block_bytes(s, tail) : 0);
}

// "fp32", "bf16", "fp16_s256", "fp8_e4m3_s256", "fp8_e5m2_s256": the names in a manifest.
const char* storage_name(Storage s);
// False for a name that is none of these.
bool parse_storage(const char* name, std::uint64_t length, Storage* storage);

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_STORAGE_H_
