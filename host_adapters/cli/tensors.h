// The host's side of a synthetic store: parameters and gradients, cut into shards. What a training
// job would hold anyhow.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_TENSORS_H_
#define MILLPOND_HOST_ADAPTERS_CLI_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host_adapters/cli/cuda_device.h"
#include "millpond/host.h"

namespace millpond::cli {

// Anonymous pages, all of them touched.
class HostPages {
 public:
  explicit HostPages(std::uint64_t bytes);  // throws Error(E_MEMORY)
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;
  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// Parameters or gradients, filled with small finite pseudo-random numbers, the same in every run.
class TensorMemory {
 public:
  // `device` NULL: in host memory; else borrowed. Throws Error(E_MEMORY, E_DEVICE).
  TensorMemory(std::uint64_t bytes, const CudaDevice* device);
  ~TensorMemory();
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;
  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_;
  const CudaDevice* device_;
  std::optional<HostPages> pages_;
  std::byte* data_ = nullptr;
};

// "fp32" or "bf16"; and the bytes of an element.
millpond_dtype dtype_of(const std::string& name);
std::uint64_t item_bytes(millpond_dtype dtype);

class Tensors {
 public:
  // `device` as above.
  Tensors(std::uint64_t params, std::uint64_t shard_elements, millpond_dtype parameters,
          millpond_dtype gradients, const CudaDevice* device = nullptr);

  struct Shard {
    std::string key;
    std::uint64_t begin = 0;  // in the parameters
    std::uint64_t numel = 0;
  };
  const std::vector<Shard>& shards() const { return shards_; }
  std::uint64_t params() const { return params_; }
  millpond_dtype parameter_dtype() const { return parameters_; }
  millpond_dtype gradient_dtype() const { return gradients_; }
  millpond_tensor model(const Shard& shard) const;
  millpond_tensor grad(const Shard& shard) const;
  std::byte* model_at(std::uint64_t element) const {
    return model_.data() + element * item_bytes(parameters_);
  }
  const std::byte* grad_at(std::uint64_t element) const {
    return grad_.data() + element * item_bytes(gradients_);
  }
  std::uint64_t model_bytes() const { return model_.bytes(); }
  std::uint64_t grad_bytes() const { return grad_.bytes(); }

 private:
  millpond_tensor tensor(std::byte* data, std::uint64_t numel, millpond_dtype dtype) const;

  std::uint64_t params_;
  millpond_dtype parameters_, gradients_;
  const CudaDevice* device_;
  TensorMemory model_, grad_;
  std::vector<Shard> shards_;
};

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_TENSORS_H_
