// The CPU device: work is done in the tile's place in the host tier, by the pool's threads.
#include <algorithm>
#include <string>
#include <utility>

#include "millpond/error.hpp"
#include "plugin/device/host_pieces.h"
#include "plugin/device/slices.h"
#include "plugin/device/stored_run.h"
#include "plugin/device/work.h"

namespace millpond::plugin {
namespace {

constexpr std::uint32_t kMoments[] = {MILLPOND_SEGMENT_EXP_AVG, MILLPOND_SEGMENT_EXP_AVG_SQ};

std::byte* model_address(const ShardWork& shard, std::uint64_t index) {
  return static_cast<std::byte*>(shard.model) + index * kernels::item_bytes(shard.model_element);
}

// Work that is finished when start returns.
class SynchronousWork : public TileWork {
 public:
  SynchronousWork(ThreadPool& pool, HostPieces& pieces) : pool_(pool), pieces_(pieces) {}

  void start(TileView* tile) final {
    work(*tile);
    done_ = tile;
  }
  TileView* finished(bool) final { return std::exchange(done_, nullptr); }

 protected:
  virtual void work(TileView& tile) = 0;

  // Calls function(run) for every run of the tile, by all threads.
  template <typename Function>
  void on_runs(const TileView& tile, const Function& function) {
    const Slices slices(tile, pool_.threads());
    pool_.run(slices.count(), [&](std::uint64_t i) { each_run(tile, slices[i], function); });
  }
  // The same on this thread alone, in pieces that a callback may see.
  template <typename Function>
  void on_pieces(const TileView& tile, const Function& function) {
    const Slices slices(tile, 1, kPieceElements);
    for (std::uint64_t i = 0; i < slices.count(); ++i) each_run(tile, slices[i], function);
  }
  static bool host_copies(const ShardWork& shard) {
    return shard.model == nullptr && !shard.moments_only;
  }

  ThreadPool& pool_;
  HostPieces& pieces_;

 private:
  TileView* done_ = nullptr;
};

class UpdateWork final : public SynchronousWork {
 public:
  UpdateWork(ThreadPool& pool, HostPieces& pieces, kernels::Variant variant)
      : SynchronousWork(pool, pieces), variant_(variant) {}
  void begin(const StepWork& step) { step_ = &step; }

 protected:
  void work(TileView& tile) override {
    bool any_active = false, any_copied = false;
    for (const Piece& piece : tile.plan->pieces_of(*tile.tile)) {
      const ShardWork& shard = step_->shards[piece.shard];
      any_active |= shard.active;
      any_copied |= shard.active && host_copies(shard);
    }
    if (!any_active) return;
    if (!tile.moments_present) make_moments(tile);
    tile.dirty = true;
    if (variant_ == kernels::Variant::kHost) {
      on_pieces(tile, [&](const PieceRun& run) {
        const ShardWork& shard = step_->shards[run.piece->shard];
        if (shard.active) pieces_.update(tile, run, shard, step_->hypers[shard.scalars]);
      });
    } else {
      on_runs(tile, [&](const PieceRun& run) { update(tile, run); });
    }
    tile.moments_present = true;
    if (!any_copied) return;
    on_pieces(tile, [&](const PieceRun& run) {
      const ShardWork& shard = step_->shards[run.piece->shard];
      if (shard.active && host_copies(shard)) pieces_.copy_main(tile, run, shard);
    });
  }

 private:
  void update(const TileView& tile, const PieceRun& piece) const {
    const ShardWork& shard = step_->shards[piece.piece->shard];
    if (!shard.active) return;
    kernels::Run run{};
    if (!shard.moments_only) run.main = stored_run(tile, MILLPOND_SEGMENT_MAIN, piece.tile_begin);
    run.exp_avg = stored_run(tile, MILLPOND_SEGMENT_EXP_AVG, piece.tile_begin);
    run.exp_avg_sq = stored_run(tile, MILLPOND_SEGMENT_EXP_AVG_SQ, piece.tile_begin);
    run.grad = static_cast<const std::byte*>(shard.grad) +
               piece.shard_begin * kernels::item_bytes(shard.grad_element);
    run.model = shard.model == nullptr ? nullptr : model_address(shard, piece.shard_begin);
    run.count = piece.count;
    run.shard_begin = piece.shard_begin;
    run.shard_numel = shard.numel;
    run.grad_element = shard.grad_element;
    run.model_element = shard.model_element;
    run.moments_present = tile.moments_present;
    kernels::update(run, step_->scalars[shard.scalars]);
  }

  // Zero moments for the whole tile, so that gaps, padding and shards without a gradient are as
  // format says: zero bytes, and a scale of 1 for a group of zeros.
  void make_moments(const TileView& tile) {
    pool_.run(2 * tile.tile->blocks, [&](std::uint64_t i) {
      const std::uint32_t segment = kMoments[i % 2];
      const std::uint64_t block_elements = tile.plan->options.block_elements;
      const kernels::StoredRun block = stored_run(tile, segment, i / 2 * block_elements);
      if (block.block != nullptr) kernels::zero_block(block);
    });
  }

  kernels::Variant variant_;
  const StepWork* step_ = nullptr;
};

class FillMainWork final : public SynchronousWork {
 public:
  using SynchronousWork::SynchronousWork;
  void begin(std::span<const ShardWork> shards, std::span<const std::uint8_t> chosen) {
    shards_ = shards;
    chosen_ = chosen;
    require_main_sources(shards, chosen);
  }

 protected:
  void work(TileView& tile) override {
    on_runs(tile, [&](const PieceRun& run) {
      const ShardWork& shard = shards_[run.piece->shard];
      if (chosen_[run.piece->shard] != 0 && !shard.moments_only) fill(tile, run, shard);
    });
    tile.dirty = true;
  }

 private:
  static void fill(const TileView& tile, const PieceRun& run, const ShardWork& shard) {
    constexpr std::uint64_t kAtOnce = 4 * kernels::kGroupElements;
    for (std::uint64_t i = 0; i < run.count; i += kAtOnce) {
      const std::uint64_t count = std::min(kAtOnce, run.count - i);
      float widened[kAtOnce];
      const float* from = widened;
      if (shard.given_main != nullptr) {
        from = shard.given_main + run.shard_begin + i;
      } else {
        kernels::widen(model_address(shard, run.shard_begin + i), shard.model_element, widened,
                       count);
      }
      kernels::encode(from, stored_run(tile, MILLPOND_SEGMENT_MAIN, run.tile_begin + i), count,
                      false);
    }
  }

  std::span<const ShardWork> shards_;
  std::span<const std::uint8_t> chosen_;
};

class WriteModelWork final : public SynchronousWork {
 public:
  using SynchronousWork::SynchronousWork;
  void begin(std::span<const ShardWork> shards) { shards_ = shards; }

 protected:
  void work(TileView& tile) override {
    on_runs(tile, [&](const PieceRun& run) {
      const ShardWork& shard = shards_[run.piece->shard];
      if (shard.model != nullptr && !shard.moments_only) write(tile, run, shard);
    });
    on_pieces(tile, [&](const PieceRun& run) {
      const ShardWork& shard = shards_[run.piece->shard];
      if (host_copies(shard)) pieces_.copy_main(tile, run, shard);
    });
  }

 private:
  static void write(const TileView& tile, const PieceRun& run, const ShardWork& shard) {
    constexpr std::uint64_t kAtOnce = 4 * kernels::kGroupElements;
    for (std::uint64_t i = 0; i < run.count; i += kAtOnce) {
      const std::uint64_t count = std::min(kAtOnce, run.count - i);
      float main[kAtOnce];
      kernels::decode(stored_run(tile, MILLPOND_SEGMENT_MAIN, run.tile_begin + i), main, count);
      kernels::narrow(main, model_address(shard, run.shard_begin + i), shard.model_element, count);
    }
  }

  std::span<const ShardWork> shards_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(ThreadPool& pool, Host& host, std::string uid, kernels::Variant variant)
      : pieces_(host, std::move(uid), variant == kernels::Variant::kHost),
        update_(pool, pieces_, variant),
        fill_(pool, pieces_),
        write_(pool, pieces_) {
    const char* why_not = "";
    if (!kernels::variant_supported(variant, false, &why_not)) {
      throw Error(MILLPOND_E_UNSUPPORTED, "make a CPU device", why_not)
          .field(kernels::variant_name(variant))
          .remedy("Name a variant of the CPU, or host/1 with an update callback");
    }
    if (variant == kernels::Variant::kHost && !host.has_update()) {
      throw Error(MILLPOND_E_ARGUMENT, "make a CPU device",
                  "the arithmetic host/1 is the host's own Adam, and no update callback was given")
          .field("host_api.update");
    }
  }

  std::uint64_t device_bytes() const override { return 0; }

  TileWork& begin_step(const StepWork& step, millpond_stream) override {
    for (const kernels::Hyper& hyper : step.hypers) {
      const char* why_not = "";
      if (kernels::hyper_proven(hyper, &why_not)) continue;
      throw Error(MILLPOND_E_ARGUMENT, "step", why_not).field("step_args.groups");
    }
    update_.begin(step);
    return update_;
  }
  void finish_step(millpond_stream) override {}

  TileWork& begin_fill_main(std::span<const ShardWork> shards, std::span<const std::uint8_t> chosen,
                            millpond_stream) override {
    fill_.begin(shards, chosen);
    return fill_;
  }
  TileWork& begin_write_model(std::span<const ShardWork> shards, millpond_stream) override {
    write_.begin(shards);
    return write_;
  }

 private:
  HostPieces pieces_;
  UpdateWork update_;
  FillMainWork fill_;
  WriteModelWork write_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(ThreadPool& pool, Host& host, std::string uid,
                                        kernels::Variant variant) {
  return std::make_unique<CpuDevice>(pool, host, std::move(uid), variant);
}

}  // namespace millpond::plugin
