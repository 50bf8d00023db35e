// The limits of a device for a step: its bus, and its memory under the update.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "kernels/adam_cuda.h"
#include "millpond/error.hpp"
#include "plugin/probe/cuda.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kCopyBytes = 256ULL << 20;
constexpr int kCopies = 4;  // of one measurement and direction

void check(int code, const char* what) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  const auto error = static_cast<cudaError_t>(code);
  throw Error(error == cudaErrorMemoryAllocation ? MILLPOND_E_MEMORY : MILLPOND_E_DEVICE, what,
              std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error))
      .cuda(code)
      .remedy("Look at nvidia-smi; a measurement needs about 2 GB of the device");
}

// The caller's device comes back at the end.
class OnDevice {
 public:
  explicit OnDevice(std::int32_t device) : had_(cudaGetDevice(&before_) == cudaSuccess) {
    check(cudaSetDevice(device), "use a CUDA device");
  }
  ~OnDevice() {
    if (had_) static_cast<void>(cudaSetDevice(before_));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool had_;
};

class Memory {
 public:
  Memory(std::uint64_t bytes, bool pinned) : pinned_(pinned) {
    check(pinned ? cudaMallocHost(&data_, bytes) : cudaMalloc(&data_, bytes), "take memory");
  }
  ~Memory() { static_cast<void>(pinned_ ? cudaFreeHost(data_) : cudaFree(data_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
  bool pinned_;
};

// A stream and the events around what is timed on it.
class Lane {
 public:
  Lane() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
    check(cudaEventCreate(&begin_), "make an event");
    check(cudaEventCreate(&end_), "make an event");
  }
  ~Lane() {
    static_cast<void>(cudaEventDestroy(begin_));
    static_cast<void>(cudaEventDestroy(end_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  cudaStream_t stream() const { return stream_; }
  void begin() { check(cudaEventRecord(begin_, stream_), "record an event"); }
  void end() { check(cudaEventRecord(end_, stream_), "record an event"); }
  // From another lane's begin to this one's end, waited for.
  double seconds_from(const Lane& other) const {
    float milliseconds = 0;
    check(cudaEventSynchronize(end_), "wait for a measurement");
    check(cudaEventElapsedTime(&milliseconds, other.begin_, end_), "read a measurement");
    return milliseconds * 1e-3;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

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

BusRate measure_bus(std::int32_t device, std::uint32_t rounds) {
  const OnDevice on(device);
  BusProbe probe;
  static_cast<void>(probe.rate(true, true));
  std::vector<double> up, down, both;
  for (std::uint32_t i = 0; i < rounds; ++i) {
    up.push_back(probe.rate(true, false));
    down.push_back(probe.rate(false, true));
    both.push_back(probe.rate(true, true));
  }
  return {median(up), median(down), median(both)};
}

UpdateRate measure_cuda_update(std::int32_t device, const UpdateRequest& request) {
  using kernels::kGroupElements;
  constexpr std::uint64_t kBlock = 1 << 18;
  const OnDevice on(device);
  const bool own_main = request.model == kernels::Element::kFp32;
  UpdateRate rate;
  rate.elements = kernels::round_up(request.elements, kBlock);
  const std::uint64_t moments = kernels::run_bytes(request.moments, rate.elements, kBlock);
  const std::uint64_t main = own_main ? 0 : rate.elements * sizeof(float);
  const std::uint64_t model = rate.elements * kernels::item_bytes(request.model);
  const std::uint64_t grad = rate.elements * kernels::item_bytes(request.grad);
  rate.bytes = 2 * (main + 2 * moments) + grad + (own_main ? 2 : 1) * model;

  const Memory state(main + 2 * moments, false), models(model, false), grads(grad, false);
  struct Tables {
    kernels::CudaPiece piece;
    kernels::CudaShard shard;
    kernels::Scalars scalars;
  } tables{};
  const Memory on_device(sizeof tables, false);
  tables.piece = {0, rate.elements, 0, 0};
  tables.shard.grad = static_cast<const unsigned char*>(grads.get());
  tables.shard.model = static_cast<unsigned char*>(models.get());
  tables.shard.grad_element = request.grad;
  tables.shard.model_element = request.model;
  tables.shard.active = true;
  tables.scalars =
      kernels::prepare({request.variant, 1e-3, 0.9, 0.999, 1e-8, 0.01, 10, 1.0F, true, false});
  Lane lane;
  // Small numbers everywhere: no zeros, which hardware may move faster, and nothing that overflows.
  check(cudaMemsetAsync(state.get(), 0x2b, main + 2 * moments, lane.stream()), "fill memory");
  check(cudaMemsetAsync(models.get(), 0x2b, model, lane.stream()), "fill memory");
  check(cudaMemsetAsync(grads.get(), 0x2b, grad, lane.stream()), "fill memory");
  check(cudaMemcpyAsync(on_device.get(), &tables, sizeof tables, cudaMemcpyHostToDevice,
                        lane.stream()),
        "send tables");
  auto* const there = static_cast<Tables*>(on_device.get());
  check(kernels::complete_scalars_on_cuda(&there->scalars, 1, lane.stream()), "prepare the update");

  auto* const memory = static_cast<unsigned char*>(state.get());
  kernels::CudaTile tile{};
  tile.segments[0] = kernels::cuda_segment(own_main ? nullptr : memory, kernels::Storage::kFp32,
                                           rate.elements, kBlock);
  tile.segments[1] = kernels::cuda_segment(memory + main, request.moments, rate.elements, kBlock);
  tile.segments[2] =
      kernels::cuda_segment(memory + main + moments, request.moments, rate.elements, kBlock);
  tile.pieces = &there->piece;
  tile.shards = &there->shard;
  tile.count = 1;
  tile.groups = static_cast<std::uint32_t>(rate.elements / kGroupElements);
  tile.groups_per_block = kBlock / kGroupElements;
  tile.moments_present = true;
  std::uint32_t blocks = 0;
  check(kernels::blocks_on_cuda(request.variant, kernels::is_scaled(request.moments), &blocks),
        "load the update");
  const auto timed = [&](bool update) {
    lane.begin();
    check(update ? kernels::update_on_cuda(request.variant, tile, &there->scalars, blocks,
                                           lane.stream())
                 : kernels::move_on_cuda(tile, blocks, lane.stream()),
          "run the update");
    lane.end();
    return lane.seconds_from(lane);
  };
  static_cast<void>(timed(true));
  static_cast<void>(timed(false));
  std::vector<double> updates, moves;
  for (std::uint32_t i = 0; i < request.rounds; ++i) {
    moves.push_back(timed(false));
    updates.push_back(timed(true));
  }
  rate.update_seconds = median(updates);
  rate.ceiling_seconds = median(moves);
  rate.update_bytes_per_s = static_cast<double>(rate.bytes) / rate.update_seconds;
  rate.ceiling_bytes_per_s = static_cast<double>(rate.bytes) / rate.ceiling_seconds;
  return rate;
}

}  // namespace millpond::plugin
