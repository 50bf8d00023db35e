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

constexpr std::uint64_t kPattern = 8 << 20;  // bytes after which the numbers repeat

// Exponents of both halves of a word are fixed: values around 0.01, read as fp32 or as 16 bits.
void make_noise(std::byte* memory, std::uint64_t bytes) {
  std::uint64_t state = 0x9e3779b97f4a7c15ull;
  for (std::uint64_t at = 0; at < bytes; at += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const std::uint64_t word = (state & 0x807f807f807f807full) | 0x3c003c003c003c00ull;
    std::memcpy(memory + at, &word, std::min<std::uint64_t>(8, bytes - at));
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

TensorMemory::TensorMemory(std::uint64_t bytes, const CudaDevice* device)
    : bytes_(std::max<std::uint64_t>(bytes, 1)), device_(device) {
  const std::uint64_t first = std::min(bytes_, kPattern);
  if (device_ == nullptr) {
    data_ = pages_.emplace(bytes_).data();
    make_noise(data_, first);
    for (std::uint64_t at = first; at < bytes_; at += first) {
      std::memcpy(data_ + at, data_, std::min(first, bytes_ - at));
    }
    return;
  }
  std::vector<std::byte> noise(first);
  make_noise(noise.data(), first);
  data_ = device_->take(bytes_);
  device_->upload(data_, noise.data(), first);
  // What is there already, behind itself.
  for (std::uint64_t at = first; at < bytes_; at *= 2) {
    device_->copy(data_ + at, data_, std::min(at, bytes_ - at));
  }
}

TensorMemory::~TensorMemory() {
  if (device_ != nullptr) device_->give_back(data_);
}

millpond_dtype dtype_of(const std::string& name) {
  return name == "fp32" ? MILLPOND_DTYPE_FP32 : MILLPOND_DTYPE_BF16;
}

std::uint64_t item_bytes(millpond_dtype dtype) { return dtype == MILLPOND_DTYPE_FP32 ? 4 : 2; }

Tensors::Tensors(std::uint64_t params, std::uint64_t shard_elements, millpond_dtype parameters,
                 millpond_dtype gradients, const CudaDevice* device)
    : params_(params),
      parameters_(parameters),
      gradients_(gradients),
      device_(device),
      model_(params * item_bytes(parameters), device),
      grad_(params * item_bytes(gradients), device) {
  for (std::uint64_t begin = 0; begin < params; begin += shard_elements) {
    char key[32];
    std::snprintf(key, sizeof(key), "layer%05zu.weight", shards_.size());
    shards_.push_back({key, begin, std::min(shard_elements, params - begin)});
  }
}

millpond_tensor Tensors::tensor(std::byte* data, std::uint64_t numel, millpond_dtype dtype) const {
  millpond_tensor tensor = client::cpu_tensor(data, numel, dtype);
  if (device_ != nullptr) {
    tensor.device_type = MILLPOND_DEVICE_CUDA;
    tensor.device_id = device_->index();
  }
  return tensor;
}

millpond_tensor Tensors::model(const Shard& shard) const {
  return tensor(model_at(shard.begin), shard.numel, parameters_);
}

millpond_tensor Tensors::grad(const Shard& shard) const {
  return tensor(grad_.data() + shard.begin * item_bytes(gradients_), shard.numel, gradients_);
}

}  // namespace millpond::cli
