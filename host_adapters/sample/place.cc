#include "host_adapters/sample/place.h"

#include <algorithm>

#include "host_adapters/sample/cpu_device.h"
#include "host_adapters/sample/cpu_model.h"
#include "host_adapters/sample/resident_adam.h"
#include "host_adapters/sample/shared_memory.h"
#include "millpond/error.hpp"
#ifdef MILLPOND_SAMPLE_CUDA
#include "host_adapters/sample/cuda_device.h"
#include "host_adapters/sample/cuda_model.h"
#include "host_adapters/sample/resident_cuda_adam.h"
#endif
#ifdef MILLPOND_SAMPLE_NCCL
#include "host_adapters/sample/nccl_collective.h"
#endif

namespace millpond::sample {
namespace {

// Ranks of one machine share its processors.
std::size_t threads_of_rank(const Arguments& arguments) {
  if (arguments.threads != 0) return arguments.threads;
  return std::max<std::size_t>(1, usable_processors() / arguments.ranks);
}

[[maybe_unused]] bool on_cuda(const Device& device) {
  return device.stream().device_type == MILLPOND_DEVICE_CUDA;
}

std::unique_ptr<Device> make_cuda_device([[maybe_unused]] const Arguments& arguments,
                                         [[maybe_unused]] std::uint32_t rank) {
#ifdef MILLPOND_SAMPLE_CUDA
  const int devices = CudaDevice::count();
  const std::size_t colon = arguments.device.find(':');
  int index = colon == std::string::npos ? static_cast<int>(rank)
                                         : std::stoi(arguments.device.substr(colon + 1));
  // Over shared memory ranks may share GPUs as well.
  if (colon == std::string::npos && arguments.collective == "shared" && devices > 0) {
    index %= devices;
  }
  if (index < devices) return std::make_unique<CudaDevice>(index);
  throw Error(MILLPOND_E_DEVICE, "choose CUDA device " + std::to_string(index),
              "this machine has " + std::to_string(devices) + " that can be used")
      .want(static_cast<std::uint64_t>(index) + 1, static_cast<std::uint64_t>(devices))
      .remedy("--collective shared lets ranks share GPUs; --device cuda:N puts all on device N");
#else
  throw Error(MILLPOND_E_UNSUPPORTED, "choose " + arguments.device,
              "this millpond-sample was built without CUDA")
      .remedy("Put the CUDA toolkit's nvcc on PATH and build again");
#endif
}

std::unique_ptr<Collective> make_collective(const Arguments& arguments, processes::Meeting& meeting,
                                            std::uint32_t rank, Device& device) {
#ifdef MILLPOND_SAMPLE_NCCL
  // NCCL wants a GPU for each rank.
  const bool own_gpu = arguments.device == "cuda" || arguments.ranks == 1;
  if (on_cuda(device) &&
      (arguments.collective == "nccl" || (arguments.collective == "auto" && own_gpu))) {
    return std::make_unique<NcclCollective>(meeting, rank, static_cast<CudaDevice&>(device));
  }
#endif
  if (arguments.collective == "nccl") {
    throw Error(MILLPOND_E_UNSUPPORTED, "choose NCCL", "this millpond-sample was built without it")
        .remedy("Install NCCL (libnccl-dev) beside the CUDA toolkit and build again");
  }
  return std::make_unique<SharedMemory>(meeting, rank, device);
}

}  // namespace

Place::Place(const Arguments& arguments, processes::Meeting& meeting, std::uint32_t rank) {
  if (arguments.device == "cpu") {
    device_ = std::make_unique<CpuDevice>(threads_of_rank(arguments));
  } else {
    device_ = make_cuda_device(arguments, rank);
  }
  ranks_ = make_collective(arguments, meeting, rank, *device_);
}

std::unique_ptr<Model> Place::make_model(const Layout& layout, std::uint64_t seed) const {
#ifdef MILLPOND_SAMPLE_CUDA
  if (on_cuda(*device_)) {
    return std::make_unique<CudaModel>(layout, seed, static_cast<CudaDevice&>(*device_));
  }
#endif
  return std::make_unique<CpuModel>(layout, seed, static_cast<CpuDevice&>(*device_));
}

std::unique_ptr<Optimizer> Place::make_resident(Model& model, const Hyperparameters& hyper) const {
#ifdef MILLPOND_SAMPLE_CUDA
  if (on_cuda(*device_)) {
    return std::make_unique<ResidentCudaAdam>(model, rank(), hyper,
                                              static_cast<CudaDevice&>(*device_));
  }
#endif
  return std::make_unique<ResidentAdam>(model, rank(), hyper, static_cast<CpuDevice&>(*device_));
}

}  // namespace millpond::sample
