#include "host_adapters/sample/place.h"

#include <algorithm>

#include "host_adapters/sample/cpu_device.h"
#include "host_adapters/sample/cpu_model.h"
#include "host_adapters/sample/resident_adam.h"
#include "host_adapters/sample/shared_memory.h"

namespace millpond::sample {
namespace {

// Ranks of one machine share its processors.
std::size_t threads_of_rank(const Arguments& arguments) {
  if (arguments.threads != 0) return arguments.threads;
  return std::max<std::size_t>(1, usable_processors() / arguments.ranks);
}

}  // namespace

Place::Place(const Arguments& arguments, Meeting& meeting, std::uint32_t rank)
    : device_(std::make_unique<CpuDevice>(threads_of_rank(arguments))),
      ranks_(std::make_unique<SharedMemory>(meeting, rank, *device_)) {}

std::unique_ptr<Model> Place::make_model(const Layout& layout, std::uint64_t seed) const {
  return std::make_unique<CpuModel>(layout, seed, static_cast<CpuDevice&>(*device_));
}

std::unique_ptr<Optimizer> Place::make_resident(Model& model, const Hyperparameters& hyper) const {
  return std::make_unique<ResidentAdam>(model, rank(), hyper, static_cast<CpuDevice&>(*device_));
}

}  // namespace millpond::sample
