#include "host_adapters/cli/bench_cuda.h"

#include <algorithm>
#include <chrono>
#include <exception>

namespace millpond::cli {
namespace {

constexpr std::uint32_t kSmallShards = 10'000;
constexpr std::uint32_t kSmallRounds = 21;  // each takes a tenth of a millisecond

}  // namespace

DeviceMemoryWatch::DeviceMemoryWatch(const CudaDevice& device)
    : before_(device.free_bytes()), least_(before_) {
  watcher_ = std::jthread([this, &device](const std::stop_token& stop) {
    try {
      device.use();
      while (!stop.stop_requested()) {
        least_.store(std::min(least_.load(), device.free_bytes()));
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    } catch (const std::exception&) {
      // A device that does not answer here fails the step itself.
    }
  });
}

DeviceMemoryWatch::~DeviceMemoryWatch() = default;

std::uint64_t DeviceMemoryWatch::peak_bytes() const { return before_ - least_.load(); }

Json CudaProbe::ceilings(Json request) const {
  request["cuda_device"] = device_;
  return ask(plugin_.probe().ceilings, runtime_, request);
}

void CudaProbe::measure_limits(const BenchArguments& arguments, CudaFigures* figures) const {
  const Json bus = ceilings({{"measure", Json::array({"bus"})}}).at("bus");
  figures->bus_up_bytes_per_s = bus.at("up_bytes_per_s").get<double>();
  figures->bus_down_bytes_per_s = bus.at("down_bytes_per_s").get<double>();
  figures->bus_both_bytes_per_s = bus.at("both_bytes_per_s").get<double>();
  const Json small = ceilings({{"measure", Json::array({"cuda_update"})},
                               {"moments", arguments.moments},
                               {"parameters", arguments.parameters},
                               {"gradients", arguments.gradients},
                               {"shards", kSmallShards},
                               {"rounds", kSmallRounds}})
                         .at("cuda_update");
  figures->small_shards = kSmallShards;
  figures->small_bytes_per_s = small.at("update_bytes_per_s").get<double>();
  figures->small_ceiling_bytes_per_s = small.at("update_ceiling_bytes_per_s").get<double>();
}

double CudaProbe::bus_bytes_per_s(std::uint32_t rounds) const {
  return ceilings({{"measure", Json::array({"bus"})},
                   {"rounds", rounds},
                   {"bus_directions", Json::array({"both"})}})
      .at("bus")
      .at("both_bytes_per_s")
      .get<double>();
}

void CudaProbe::measure_start(std::uint64_t bytes, std::uint32_t threads,
                              CudaFigures* figures) const {
  const Json request = {
      {"measure", Json::array({"pin"})}, {"pin_bytes", bytes}, {"threads", threads}};
  ceilings(request);
  const Json pin = ceilings(request).at("pin");
  figures->touch_s = pin.at("touch_s").get<double>();
  figures->register_s = pin.at("register_s").get<double>();
}

}  // namespace millpond::cli
