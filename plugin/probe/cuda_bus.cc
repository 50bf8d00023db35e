// The limit of a device's bus for a step.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "plugin/probe/cuda.h"
#include "plugin/probe/cuda_owners.h"
#include "plugin/probe/median.h"

namespace millpond::plugin {
namespace {

using measuring::check;
using measuring::Lane;
using measuring::Memory;
using measuring::OnDevice;

constexpr std::uint64_t kCopyBytes = 256ULL << 20;
constexpr int kCopies = 4;  // of one measurement and direction

class BusProbe {
 public:
  // Bytes per second, of the directions together.
  double rate(bool up, bool down) {
    lanes_[0].begin();
    lanes_[1].begin();
    for (int i = 0; i < kCopies; ++i) {
      if (up) copy(device_[0].get(), host_[0].get(), cudaMemcpyHostToDevice, lanes_[0]);
      if (down) copy(host_[1].get(), device_[1].get(), cudaMemcpyDeviceToHost, lanes_[1]);
    }
    lanes_[0].end();
    lanes_[1].end();
    const double seconds =
        std::max(lanes_[0].seconds_from(lanes_[0]), lanes_[1].seconds_from(lanes_[0]));
    return static_cast<double>((up ? 1 : 0) + (down ? 1 : 0)) * kCopies * kCopyBytes / seconds;
  }

 private:
  static void copy(void* to, const void* from, cudaMemcpyKind kind, const Lane& lane) {
    check(cudaMemcpyAsync(to, from, kCopyBytes, kind, lane.stream()), "copy over the bus");
  }
  Memory host_[2] = {{kCopyBytes, true}, {kCopyBytes, true}};
  Memory device_[2] = {{kCopyBytes, false}, {kCopyBytes, false}};
  Lane lanes_[2];
};

}  // namespace

BusRate measure_bus(std::int32_t device, std::uint32_t rounds, BusDirections directions) {
  const OnDevice on(device);
  BusProbe probe;
  static_cast<void>(probe.rate(true, true));
  std::vector<double> up, down, both;
  for (std::uint32_t i = 0; i < rounds; ++i) {
    if (directions.up) up.push_back(probe.rate(true, false));
    if (directions.down) down.push_back(probe.rate(false, true));
    if (directions.both) both.push_back(probe.rate(true, true));
  }
  return {median(up), median(down), median(both)};
}

}  // namespace millpond::plugin
