// The limit of a device's memory for a step: the update of one tile, and what it loads and stores.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <random>
#include <vector>

#include "kernels/adam_cuda.h"
#include "plugin/probe/cuda.h"
#include "plugin/probe/cuda_owners.h"

namespace millpond::plugin {
namespace {

using kernels::CudaPiece;
using kernels::CudaShard;
using kernels::kGroupElements;
using measuring::check;
using measuring::Lane;
using measuring::Memory;
using measuring::OnDevice;

constexpr std::uint64_t kBlock = 1 << 18;
constexpr std::uint64_t kMostOfSmall = 2000;  // elements of a small shard

// Shards that lie one after another, each from a whole group on.
struct Layout {
  std::vector<std::uint64_t> numels;
  std::uint64_t elements = 0;  // of the shards
  std::uint64_t room = 0;      // of the tile, whole groups

  explicit Layout(std::vector<std::uint64_t> shards) : numels(std::move(shards)) {
    for (const std::uint64_t n : numels) {
      elements += n;
      room += kernels::round_up(n, kGroupElements);
    }
  }
};

Layout layout_of(const UpdateRequest& request) {
  if (request.shards <= 1) return Layout({kernels::round_up(request.elements, kBlock)});
  std::mt19937_64 random(1);
  std::uniform_int_distribution<std::uint64_t> numel(1, kMostOfSmall);
  std::vector<std::uint64_t> numels(request.shards);
  for (std::uint64_t& n : numels) n = numel(random);
  return Layout(std::move(numels));
}

// A tile in device memory with everything that a launch needs.
class DeviceTile {
 public:
  DeviceTile(const UpdateRequest& request, const Layout& layout, const Lane& lane)
      : variant_(request.variant),
        own_main_(request.model == kernels::Element::kFp32),
        moments_(kernels::run_bytes(request.moments, layout.room, kBlock)),
        main_(own_main_ ? 0 : layout.room * sizeof(float)),
        state_(main_ + 2 * moments_, false),
        model_(layout.room * kernels::item_bytes(request.model), false),
        grad_(layout.room * kernels::item_bytes(request.grad), false),
        tables_(sizeof(kernels::Scalars) +
                    layout.numels.size() * (sizeof(CudaShard) + sizeof(CudaPiece)),
                false) {
    fill(request, layout, lane);
    send_tables(request, layout, lane);
    auto* const memory = static_cast<unsigned char*>(state_.get());
    tile_.segments[0] = kernels::cuda_segment(own_main_ ? nullptr : memory, kernels::Storage::kFp32,
                                              layout.room, kBlock);
    tile_.segments[1] = kernels::cuda_segment(memory + main_, request.moments, layout.room, kBlock);
    tile_.segments[2] =
        kernels::cuda_segment(memory + main_ + moments_, request.moments, layout.room, kBlock);
    tile_.shards = reinterpret_cast<CudaShard*>(scalars() + 1);
    tile_.pieces = reinterpret_cast<CudaPiece*>(reinterpret_cast<CudaShard*>(scalars() + 1) +
                                                layout.numels.size());
    tile_.count = static_cast<std::uint32_t>(layout.numels.size());
    tile_.groups = static_cast<std::uint32_t>(layout.room / kGroupElements);
    tile_.groups_per_block = kBlock / kGroupElements;
    tile_.moments_present = true;
    check(kernels::blocks_on_cuda(variant_, request.moments, &blocks_), "load the update");
  }

  double update_seconds(Lane& lane) const {
    lane.begin();
    check(kernels::update_on_cuda(variant_, tile_, scalars(), blocks_, lane.stream()),
          "run the update");
    lane.end();
    return lane.seconds_from(lane);
  }
  double move_seconds(Lane& lane) const {
    lane.begin();
    check(kernels::move_on_cuda(tile_, blocks_, lane.stream()), "move the update's bytes");
    lane.end();
    return lane.seconds_from(lane);
  }

 private:
  kernels::Scalars* scalars() const { return static_cast<kernels::Scalars*>(tables_.get()); }

  // Small numbers everywhere: no zeros, which hardware may move faster, and nothing that overflows.
  void fill(const UpdateRequest& request, const Layout& layout, const Lane& lane) {
    const auto with = [&](const Memory& memory, std::uint64_t bytes) {
      check(cudaMemsetAsync(memory.get(), 0x2b, bytes, lane.stream()), "fill memory");
    };
    with(state_, main_ + 2 * moments_);
    with(model_, layout.room * kernels::item_bytes(request.model));
    with(grad_, layout.room * kernels::item_bytes(request.grad));
  }

  void send_tables(const UpdateRequest& request, const Layout& layout, const Lane& lane) {
    std::vector<CudaShard> shards(layout.numels.size());
    std::vector<CudaPiece> pieces(layout.numels.size());
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      shards[i] = CudaShard{};
      shards[i].grad = static_cast<const unsigned char*>(grad_.get()) +
                       begin * kernels::item_bytes(request.grad);
      shards[i].model =
          static_cast<unsigned char*>(model_.get()) + begin * kernels::item_bytes(request.model);
      shards[i].grad_element = request.grad;
      shards[i].model_element = request.model;
      shards[i].active = true;
      pieces[i] = {0, layout.numels[i], static_cast<std::uint32_t>(i),
                   static_cast<std::uint32_t>(begin / kGroupElements)};
      begin += kernels::round_up(layout.numels[i], kGroupElements);
    }
    const kernels::Scalars prepared =
        kernels::prepare({request.variant, 1e-3, 0.9, 0.999, 1e-8, 0.01, 10, 1.0F, true, false});
    auto* to = static_cast<std::byte*>(tables_.get());
    const auto send = [&](const void* from, std::size_t bytes) {
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, lane.stream()), "send tables");
      to += bytes;
    };
    send(&prepared, sizeof prepared);
    send(shards.data(), shards.size() * sizeof(CudaShard));
    send(pieces.data(), pieces.size() * sizeof(CudaPiece));
    check(kernels::complete_scalars_on_cuda(scalars(), 1, lane.stream()), "prepare the update");
    check(cudaStreamSynchronize(lane.stream()), "prepare the update");
  }

  kernels::Variant variant_;
  bool own_main_;
  std::uint64_t moments_, main_;  // bytes
  Memory state_, model_, grad_, tables_;
  kernels::CudaTile tile_{};
  std::uint32_t blocks_ = 0;
};

}  // namespace

UpdateRate measure_cuda_update(std::int32_t device, const UpdateRequest& request) {
  const OnDevice on(device);
  const Layout layout = layout_of(request);
  const bool own_main = request.model == kernels::Element::kFp32;
  UpdateRate rate;
  rate.elements = layout.elements;
  rate.bytes =
      2 * ((own_main ? 0 : rate.elements * sizeof(float)) +
           2 * kernels::run_bytes(request.moments, kernels::round_up(rate.elements, kGroupElements),
                                  kBlock)) +
      rate.elements * (kernels::item_bytes(request.grad) +
                       (own_main ? 2 : 1) * kernels::item_bytes(request.model));
  Lane lane;
  const DeviceTile tile(request, layout, lane);
  const DeviceTile whole(request, Layout({rate.elements}), lane);
  static_cast<void>(tile.update_seconds(lane));
  static_cast<void>(whole.move_seconds(lane));
  std::vector<double> updates, moves;
  for (std::uint32_t i = 0; i < request.rounds; ++i) {
    moves.push_back(whole.move_seconds(lane));
    updates.push_back(tile.update_seconds(lane));
  }
  rate.take(updates, moves);
  return rate;
}

}  // namespace millpond::plugin
