#include <fmt/format.h>

#include "plugin/guard/checks.h"

namespace millpond::plugin {

std::string shard_name(const Profile& profile, std::size_t index) {
  return fmt::format("Shard {} (id {})", index, profile.shards[index].id);
}

std::string dtype_text(millpond_dtype dtype) {
  switch (dtype) {
    case MILLPOND_DTYPE_NONE:
      return "none";
    case MILLPOND_DTYPE_FP32:
      return "fp32";
    case MILLPOND_DTYPE_FP16:
      return "fp16";
    case MILLPOND_DTYPE_BF16:
      return "bf16";
    default:
      break;
  }
  const std::uint32_t code = dtype & 0xFF;
  const std::uint32_t bits = dtype >> 8 & 0xFF;
  const std::uint32_t lanes = dtype >> 16;
  if (lanes == 1) {
    // DLPack's codes of small floats: 7 to 14 have 8 bits, 15 and 16 have 6, 17 has 4.
    if (code >= 7 && code <= 14 && bits == 8)
      return code == 10 ? "fp8 (e4m3fn)" : code == 12 ? "fp8 (e5m2)" : "fp8";
    if (code == 17 && bits == 4) return "fp4 (e2m1fn)";
    if (code == 2) return fmt::format("fp{}", bits);
  }
  return fmt::format("code {}, {} bits, {} lanes", code, bits, lanes);
}

}  // namespace millpond::plugin
