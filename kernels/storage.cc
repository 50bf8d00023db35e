#include "kernels/storage.h"

#include <cstring>

namespace millpond::kernels {
namespace {

struct Name {
  Storage storage;
  const char* text;
};
constexpr Name kNames[] = {{Storage::kFp32, "fp32"},
                           {Storage::kBf16, "bf16"},
                           {Storage::kFp16Scaled, "fp16_s256"},
                           {Storage::kFp8E4m3Scaled, "fp8_e4m3_s256"},
                           {Storage::kFp8E5m2Scaled, "fp8_e5m2_s256"}};

}  // namespace

const char* storage_name(Storage s) {
  for (const Name& name : kNames) {
    if (name.storage == s) return name.text;
  }
  return "unknown";
}

bool parse_storage(const char* name, std::uint64_t length, Storage* storage) {
  for (const Name& known : kNames) {
    if (std::strlen(known.text) == length && std::memcmp(known.text, name, length) == 0) {
      *storage = known.storage;
      return true;
    }
  }
  return false;
}

}  // namespace millpond::kernels
