// What is done on stored elements without knowing their values.
#include <cstring>

#include "kernels/adam.h"

namespace millpond::kernels {
namespace {

std::byte* scales_of(const StoredRun& run) {
  return run.block + scale_offset(run.storage, run.block_elements) +
         run.first / kGroupElements * sizeof(float);
}

}  // namespace

void copy_stored(const StoredRun& from, const StoredRun& to, std::uint64_t count) {
  const std::uint64_t item = item_bytes(to.storage);
  std::memcpy(to.block + to.first * item, from.block + from.first * item, count * item);
  if (!is_scaled(to.storage)) return;
  const std::uint64_t groups = round_up(count, kGroupElements) / kGroupElements;
  std::memcpy(scales_of(to), scales_of(from), groups * sizeof(float));
}

void zero_block(const StoredRun& block) {
  std::memset(block.block, 0, block_bytes(block.storage, block.block_elements));
  if (!is_scaled(block.storage)) return;
  std::byte* const scales = block.block + scale_offset(block.storage, block.block_elements);
  constexpr float kOne = 1.0F;
  for (std::uint64_t group = 0; group < block.block_elements / kGroupElements; ++group) {
    std::memcpy(scales + group * sizeof kOne, &kOne, sizeof kOne);
  }
}

}  // namespace millpond::kernels
