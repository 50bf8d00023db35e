// The host's side of a synthetic store: parameters and gradients, cut into shards. What a training
// job would hold anyhow.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_TENSORS_H_
#define MILLPOND_HOST_ADAPTERS_CLI_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

// "fp32" or "bf16"; and the bytes of an element.
millpond_dtype dtype_of(const std::string& name);
std::uint64_t item_bytes(millpond_dtype dtype);

class Tensors {
 public:
  // On the CPU. The values are small finite pseudo-random numbers, the same in every run.
  Tensors(std::uint64_t params, std::uint64_t shard_elements, millpond_dtype parameters,
          millpond_dtype gradients);

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
  std::uint64_t bytes() const { return model_.bytes() + grad_.bytes(); }

 private:
  std::uint64_t params_;
  millpond_dtype parameters_, gradients_;
  HostPages model_, grad_;
  std::vector<Shard> shards_;
};

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_TENSORS_H_
