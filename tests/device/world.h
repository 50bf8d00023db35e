// A store's tiles in plain memory, its shards and their gradients, and the same parameters as plain
// vectors that an oracle steps: what the CPU device must do, without files or a pipeline.
#ifndef MILLPOND_TESTS_DEVICE_WORLD_H_
#define MILLPOND_TESTS_DEVICE_WORLD_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "millpond/error.hpp"
#include "plugin/device/work.h"
#include "tests/kernels/plain_adam.h"

namespace millpond::plugin {

struct ShardCase {
  std::uint64_t numel = 0;
  bool moments_only = false;
  bool model_here = true;  // else the host copies mains itself
};

// The host's side of the callbacks: its Adam is the plain loop, its parameter layout is a vector.
struct PlainHost {
  test::PlainHyper hyper;
  std::vector<std::vector<float>> copied;  // by shard id
  std::uint64_t largest_piece = 0, updates = 0;
  std::int32_t answer_with = MILLPOND_OK;
  bool odd_begin = false;
  std::vector<std::uint64_t> numel;

  millpond_host_api api() {
    millpond_host_api api{};
    api.header = {sizeof api, MILLPOND_TYPE_HOST_API};
    api.context = this;
    api.update = [](void* context, const millpond_update_piece* piece, std::int32_t* answer) {
      auto* host = static_cast<PlainHost*>(context);
      test::PlainHyper h = host->hyper;
      h.step = piece->step;
      h.grad_scale = piece->grad_scale;
      host->largest_piece = std::max(host->largest_piece, piece->count);
      host->odd_begin |= piece->begin % 256 != 0;
      ++host->updates;
      const std::uint64_t numel = host->numel[piece->shard_id];
      for (std::uint64_t i = 0; i < piece->count; ++i) {
        const bool tail = piece->begin + i >= numel - numel % 8;
        test::plain_torch(piece->main[i], piece->exp_avg[i], piece->exp_avg_sq[i], piece->grad[i],
                          h, true, tail);
      }
      *answer = host->answer_with;
    };
    api.copy_main_to_model = [](void* context, millpond_str, std::uint64_t shard,
                                std::uint64_t begin, const float* main, std::uint64_t count,
                                std::int32_t* answer) {
      auto& to = static_cast<PlainHost*>(context)->copied[shard];
      if (begin + count > to.size()) return;
      std::memcpy(to.data() + begin, main, count * sizeof(float));
      *answer = MILLPOND_OK;
    };
    return api;
  }
};

class World {
 public:
  struct Settings {
    std::uint64_t tile_elements = 8192, block_elements = 4096;
    std::uint32_t threads = 2;
    kernels::Storage moments = kernels::Storage::kFp32;
    kernels::Variant variant = kernels::Variant::kTorchCpuFused;
  };

  World(std::vector<ShardCase> cases, const Settings& settings)
      : cases_(std::move(cases)), settings_(settings), pool_(settings.threads) {
    LayoutOptions options;
    options.tile_elements = settings.tile_elements;
    options.block_elements = settings.block_elements;
    options.storage = {kernels::Storage::kFp32, settings.moments, settings.moments};
    std::vector<ShardShape> shapes;
    for (const ShardCase& c : cases_) shapes.push_back({c.numel, 0, c.moments_only});
    plan_ = make_plan(shapes, options);
    test::Numbers numbers(cases_.size());
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const std::uint64_t n = cases_[i].numel;
      main.push_back(numbers.values(n, -10, 0));
      exp_avg.emplace_back(n);
      exp_avg_sq.emplace_back(n);
      grad.emplace_back(n);
      given.push_back(main.back());
      own_parameter.push_back(main.back());
      model.emplace_back(n, 0xffff);
      host_.copied.emplace_back(n, 7.0F);
      host_.numel.push_back(n);
      ShardWork shard;
      shard.id = i;
      shard.group_id = i % 2;
      shard.numel = n;
      shard.moments_only = cases_[i].moments_only;
      shard.given_main = shard.moments_only || n == 0 ? nullptr : given[i].data();
      shard.model_element = shard.moments_only ? kernels::Element::kFp32 : kernels::Element::kBf16;
      step.shards.push_back(shard);
    }
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      ShardWork& shard = step.shards[i];
      if (cases_[i].model_here && shard.numel != 0) {
        shard.model = shard.moments_only ? static_cast<void*>(own_parameter[i].data())
                                         : static_cast<void*>(model[i].data());
      }
      shard.grad = grad[i].data();
    }
    for (const Tile& tile : plan_.tiles) {
      memory_.emplace_back(tile.total_bytes, std::byte{0});
      views_.push_back({static_cast<std::uint32_t>(views_.size()), &tile, &plan_, nullptr});
      views_.back().memory = memory_.back().data();
      // Moments that are not there yet are not fetched: whatever was in the place before.
      for (std::uint32_t s = 1; s < kSegments; ++s) {
        std::memset(views_.back().segment(s), 0xab, tile.bytes[s]);
      }
    }
    host_api_ = std::make_unique<Host>(host_.api(), MILLPOND_LOG_ERROR);
    device = make_cpu_device(pool_, *host_api_, "rank00000/opt0_0", settings.variant);
    fill();
  }

  void fill() {
    chosen_.assign(cases_.size(), 1);
    visit(device->begin_fill_main(step.shards, chosen_, {}));
    for (ShardWork& shard : step.shards) shard.given_main = nullptr;
  }
  void visit(TileWork& work) {
    for (TileView& view : views_) {
      view.dirty = false;
      work.start(&view);
      ASSERT_EQ(work.finished(false), &view);
      ASSERT_EQ(work.finished(true), nullptr);
    }
  }

  // A step of both sides; shards with active false stay.
  void take_step(std::uint64_t number, const std::vector<bool>& active) {
    test::Numbers numbers(number * 31 + 5);
    test::PlainHyper& h = host_.hyper;
    step.hypers.clear();
    step.scalars.clear();
    const kernels::Hyper hyper{settings_.variant, h.lr,   h.beta1,      h.beta2,     h.eps,
                               h.weight_decay,    number, h.grad_scale, h.decoupled, h.maximize};
    step.hypers.assign(2, hyper);
    step.scalars.assign(2, kernels::prepare(hyper));
    h.step = number;
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      grad[i] = numbers.values(cases_[i].numel, -20, 0);
      step.shards[i].grad = grad[i].data();
      step.shards[i].active = active[i];
      step.shards[i].scalars = i % 2;
      if (active[i]) test::plain_torch(main[i], exp_avg[i], exp_avg_sq[i], grad[i], h, true);
    }
    visit(device->begin_step(step, {}));
    device->finish_step({});
  }

  // A shard's segment as fp32, read from the tiles by the layout's description alone; fp32 only.
  std::vector<float> stored(std::uint32_t segment, std::uint32_t shard) const {
    std::vector<float> all(cases_[shard].numel);
    for (const TileView& view : views_) {
      if (segment != MILLPOND_SEGMENT_MAIN && !view.moments_present) continue;  // zero by contract
      for (const Piece& piece : plan_.pieces_of(*view.tile)) {
        if (piece.shard != shard) continue;
        std::memcpy(all.data() + piece.shard_begin, view.segment(segment) + piece.tile_begin * 4,
                    piece.count * 4);
      }
    }
    return all;
  }
  const Plan& plan() const { return plan_; }
  std::vector<TileView>& views() { return views_; }
  PlainHost& host() { return host_; }
  const std::vector<ShardCase>& cases() const { return cases_; }

  StepWork step;
  std::vector<std::vector<float>> main, exp_avg, exp_avg_sq, grad, given, own_parameter;
  std::vector<std::vector<std::uint16_t>> model;
  std::unique_ptr<Device> device;

 private:
  std::vector<ShardCase> cases_;
  Settings settings_;
  ThreadPool pool_;
  Plan plan_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<TileView> views_;
  std::vector<std::uint8_t> chosen_;
  PlainHost host_;
  std::unique_ptr<Host> host_api_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_TESTS_DEVICE_WORLD_H_
