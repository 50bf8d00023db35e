#include "host_adapters/cli/tensors.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "millpond/client/binding.h"
#include "millpond/error.hpp"

namespace millpond::cli {
namespace {

// Exponents of both halves of a word are fixed: values around 0.01, read as fp32 or as 16 bits.
void fill_noise(std::byte* memory, std::uint64_t bytes) {
  constexpr std::uint64_t kPattern = 8 << 20;
  const std::uint64_t first = std::min(bytes, kPattern);
  std::uint64_t state = 0x9e3779b97f4a7c15ull;
  for (std::uint64_t at = 0; at < first; at += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const std::uint64_t word = (state & 0x807f807f807f807full) | 0x3c003c003c003c00ull;
    std::memcpy(memory + at, &word, std::min<std::uint64_t>(8, first - at));
  }
  for (std::uint64_t at = first; at < bytes; at += first) {
    std::memcpy(memory + at, memory, std::min(first, bytes - at));
  }
}

}  // namespace

HostPages::HostPages(std::uint64_t bytes) : bytes_(std::max<std::uint64_t>(bytes, 1)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(MILLPOND_E_MEMORY, "map parameters and gradients", "the memory cannot be had")
        .want(bytes_, 0)
        .os(errno)
        .remedy("Ask for fewer --params");
  }
  madvise(memory, bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(memory);
}

HostPages::~HostPages() { munmap(data_, bytes_); }

millpond_dtype dtype_of(const std::string& name) {
  return name == "fp32" ? MILLPOND_DTYPE_FP32 : MILLPOND_DTYPE_BF16;
}

std::uint64_t item_bytes(millpond_dtype dtype) { return dtype == MILLPOND_DTYPE_FP32 ? 4 : 2; }

Tensors::Tensors(std::uint64_t params, std::uint64_t shard_elements, millpond_dtype parameters,
                 millpond_dtype gradients)
    : params_(params),
      parameters_(parameters),
      gradients_(gradients),
      model_(params * item_bytes(parameters)),
      grad_(params * item_bytes(gradients)) {
  fill_noise(model_.data(), model_.bytes());
  fill_noise(grad_.data(), grad_.bytes());
  for (std::uint64_t begin = 0; begin < params; begin += shard_elements) {
    char key[32];
    std::snprintf(key, sizeof(key), "layer%05zu.weight", shards_.size());
    shards_.push_back({key, begin, std::min(shard_elements, params - begin)});
  }
}

millpond_tensor Tensors::model(const Shard& shard) const {
  return client::cpu_tensor(model_at(shard.begin), shard.numel, parameters_);
}

millpond_tensor Tensors::grad(const Shard& shard) const {
  return client::cpu_tensor(grad_.data() + shard.begin * item_bytes(gradients_), shard.numel,
                            gradients_);
}

}  // namespace millpond::cli
