// Where a rank runs: its device, the way to the other ranks, and what is made for that device.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_PLACE_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_PLACE_H_

#include <cstdint>
#include <memory>

#include "host_adapters/processes/meeting.h"
#include "host_adapters/sample/arguments.h"
#include "host_adapters/sample/collective.h"
#include "host_adapters/sample/device.h"
#include "host_adapters/sample/model.h"
#include "host_adapters/sample/optimizer.h"

namespace millpond::sample {

// What each rank may put down at a time for the shared-memory collective.
inline constexpr std::size_t kSlotBytes = 4 << 20;

class Place {
 public:
  // The meeting must outlive it. Throws Error where the device is not to be had.
  Place(const Arguments& arguments, processes::Meeting& meeting, std::uint32_t rank);

  Device& device() const { return *device_; }
  Collective& ranks() const { return *ranks_; }
  std::uint32_t rank() const { return ranks_->rank(); }

  std::unique_ptr<Model> make_model(const Layout& layout, std::uint64_t seed) const;
  std::unique_ptr<Optimizer> make_resident(Model& model, const Hyperparameters& hyper) const;

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Collective> ranks_;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_PLACE_H_
