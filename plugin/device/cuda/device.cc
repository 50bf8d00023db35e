// The CUDA device of one store: its tables and its tiles' way. Gradients and parameters stay where
// the host has them; of the state only tiles in flight are on the device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "plugin/device/cuda.h"
#include "plugin/device/cuda/arena.h"
#include "plugin/device/cuda/context.h"
#include "plugin/device/cuda/owners.h"
#include "plugin/device/cuda/tile_work.h"
#include "plugin/device/cuda_tables.h"
#include "plugin/device/host_pieces.h"
#include "plugin/device/slices.h"

namespace millpond::plugin {
namespace {

// Tiles on their way at most: one in each of upload, kernel and download, and enough waiting that
// the bus goes on while the calling thread sums or fetches another.
constexpr std::uint64_t kMostStaged = 12;
constexpr std::uint64_t kAlignment = 512;

cudaStream_t stream_of(const millpond_stream& stream) {
  // 1 and 2, the legacy and the per-thread default stream, are CUDA's own values for them.
  return reinterpret_cast<cudaStream_t>(static_cast<std::uintptr_t>(stream.handle));
}

std::uint32_t staged_tiles(const CudaRequest& request) {
  if (request.staging_bytes == 0) return 0;
  if (request.plan->tiles.empty()) return 1;
  const std::uint64_t fit =
      request.staging_bytes / kernels::round_up(request.tile_bytes, kAlignment);
  if (fit == 0) {
    throw Error(MILLPOND_E_MEMORY, "make a CUDA device", "not one tile fits the device staging")
        .field("options.device_staging_bytes")
        .want(request.tile_bytes, request.staging_bytes)
        .remedy("Raise it, lower tile_elements, or set it to 0 to work on pinned host memory");
  }
  return static_cast<std::uint32_t>(std::min({fit, kMostStaged, request.plan->tiles.size()}));
}

// Where the parts of the arena begin, in bytes. Shards and scalars lie together: one copy a visit.
struct Places {
  std::uint64_t shards, scalars, pieces, staging, end;

  Places(std::uint64_t shard_count, std::uint64_t piece_count, std::uint64_t staging_bytes) {
    const auto after = [](std::uint64_t begin, std::uint64_t bytes) {
      return kernels::round_up(begin + bytes, kAlignment);
    };
    shards = 0;
    scalars = after(shards, shard_count * sizeof(kernels::CudaShard));
    pieces = after(scalars, shard_count * sizeof(kernels::Scalars));
    staging = after(pieces, piece_count * sizeof(kernels::CudaPiece));
    end = staging + staging_bytes;
  }
};

std::uint32_t blocks_of(const CudaRequest& request) {
  std::uint32_t blocks = 0;
  const kernels::Storage moments = request.plan->options.storage[MILLPOND_SEGMENT_EXP_AVG];
  check_cuda(kernels::blocks_on_cuda(request.variant, moments, &blocks), "load the update kernel");
  return blocks;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaRequest& request, Host& host, const CudaPin& pin)
      : request_(request),
        pin_(pin),
        context_(request.device_id),
        staged_(staged_tiles(request)),
        place_bytes_(kernels::round_up(request.tile_bytes, kAlignment)),
        pieces_(cuda_pieces(*request.plan)),
        places_(request.plan->places.size(), pieces_.size(), staged_ * place_bytes_),
        copies_(host, request.uid, false) {
    const CudaContext::Scope scope(context_);
    try {
      sent_.emplace();
      tables_.emplace(places_.pieces);
      work_.emplace(staged_, place_bytes_, blocks_of(request));
      arena_.emplace(host, places_.end, request.stream);
      fill_arena();
    } catch (...) {
      drop();
      throw;
    }
    request_.plan = nullptr;
  }

  ~CudaDevice() override {
    try {
      const CudaContext::Scope scope(context_);
      work_->abandon();
      drop();
    } catch (const Error&) {
      // The context is gone, and everything in it.
    }
  }

  std::uint64_t device_bytes() const override { return arena_->held_bytes(); }

  TileWork& begin_step(const StepWork& step, millpond_stream stream) override {
    for (const kernels::Hyper& hyper : step.hypers) {
      const char* why_not = "";
      if (kernels::hyper_proven(hyper, &why_not)) continue;
      throw Error(MILLPOND_E_ARGUMENT, "step", why_not).field("step_args.groups");
    }
    const CudaContext::Scope scope(context_);
    wait_for_tables();
    for (std::size_t i = 0; i < step.shards.size(); ++i) {
      host_shards()[i] = cuda_shard(step.shards[i], step.shards[i].active);
    }
    std::memcpy(tables_->get() + places_.scalars, step.scalars.data(),
                step.scalars.size() * sizeof(kernels::Scalars));
    send_tables(step.scalars.size());
    check_cuda(
        kernels::complete_scalars_on_cuda(
            scalars(), static_cast<std::uint32_t>(step.scalars.size()), work_->table_stream()),
        "prepare a step");
    copied_ = step.shards;
    return begin(CudaPass::Kind::kUpdate, stream);
  }

  void finish_step(millpond_stream stream) override {
    const CudaContext::Scope scope(context_);
    work_->order(stream_of(stream));
  }

  TileWork& begin_fill_main(std::span<const ShardWork> shards, std::span<const std::uint8_t> chosen,
                            millpond_stream stream) override {
    require_main_sources(shards, chosen);
    copied_ = {};
    return begin_shards(CudaPass::Kind::kFillMain, shards, stream,
                        [&](std::size_t i) { return chosen[i] != 0 && !shards[i].moments_only; });
  }

  TileWork& begin_write_model(std::span<const ShardWork> shards, millpond_stream stream) override {
    copied_ = shards;
    return begin_shards(CudaPass::Kind::kWriteModel, shards, stream, [&](std::size_t i) {
      return shards[i].model != nullptr && !shards[i].moments_only;
    });
  }

  void check_address(const void* address, const char* array, std::uint64_t index,
                     const char* member) const override {
    const CudaContext::Scope scope(context_);
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, address), "look at an address");
    const bool here =
        attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    if (here && attributes.device == request_.device_id) return;
    throw Error(MILLPOND_E_ARGUMENT, "look at an address",
                here ? "the memory is on CUDA device " + std::to_string(attributes.device) +
                           ", the store on device " + std::to_string(request_.device_id)
                     : "the address is not CUDA memory")
        .field(std::string(array) + "[" + std::to_string(index) + "]" + member)
        .at(index)
        .remedy("A store's parameters and gradients are on one device; nothing was changed");
  }

  void add_stages(millpond_step_figures* figures) const override {
    const CudaTileWork::Seconds& s = work_->seconds();
    figures->busy_seconds[MILLPOND_STAGE_UPLOAD] += s.upload;
    figures->busy_seconds[MILLPOND_STAGE_UPDATE] = s.kernel;
    figures->busy_seconds[MILLPOND_STAGE_DOWNLOAD] += s.download;
    // The call waited for tiles, whatever they waited for: in proportion.
    const double all = s.upload + s.kernel + s.download;
    if (all == 0) return;
    const double waited = figures->waiting_seconds[MILLPOND_STAGE_UPDATE];
    figures->waiting_seconds[MILLPOND_STAGE_UPLOAD] += waited * s.upload / all;
    figures->waiting_seconds[MILLPOND_STAGE_UPDATE] = waited * s.kernel / all;
    figures->waiting_seconds[MILLPOND_STAGE_DOWNLOAD] += waited * s.download / all;
    const double* const begin = figures->waiting_seconds;
    figures->bound_by =
        static_cast<std::uint32_t>(std::max_element(begin, begin + MILLPOND_STAGES) - begin);
  }

  void suspend() override {
    const CudaContext::Scope scope(context_);
    wait_for_tables();
    arena_->release();
  }

  void resume() override {
    if (arena_->held_bytes() != 0) return;
    const CudaContext::Scope scope(context_);
    arena_->take();
    fill_arena();
  }

 private:
  // While the context is current.
  void drop() {
    arena_.reset();
    work_.reset();
    tables_.reset();
    sent_.reset();
  }
  kernels::CudaShard* host_shards() const {
    return reinterpret_cast<kernels::CudaShard*>(tables_->get() + places_.shards);
  }
  template <class T>
  T* at(std::uint64_t place) const {
    return reinterpret_cast<T*>(arena_->data() + place);
  }
  kernels::Scalars* scalars() const { return at<kernels::Scalars>(places_.scalars); }

  // What stays while the memory is held.
  void fill_arena() {
    work_->use_staging(arena_->data() + places_.staging, stream_of(request_.stream));
    const std::uint64_t bytes = pieces_.size() * sizeof(kernels::CudaPiece);
    if (bytes == 0) return;
    check_cuda(cudaMemcpyAsync(arena_->data() + places_.pieces, pieces_.data(), bytes,
                               cudaMemcpyHostToDevice, work_->table_stream()),
               "send a store's pieces", bytes);
    check_cuda(cudaStreamSynchronize(work_->table_stream()), "send a store's pieces", bytes);
  }

  // The copy of the tables that the last visit began with is over.
  void wait_for_tables() {
    check_cuda(cudaEventSynchronize(sent_->get()), "wait for the last visit's tables");
  }
  void send_tables(std::size_t scalar_count) {
    const std::uint64_t bytes = places_.scalars + scalar_count * sizeof(kernels::Scalars);
    if (bytes != 0) {
      check_cuda(cudaMemcpyAsync(arena_->data(), tables_->get(), bytes, cudaMemcpyHostToDevice,
                                 work_->table_stream()),
                 "send a visit's tables", bytes);
    }
    sent_->record(work_->table_stream());
  }

  template <class Active>
  TileWork& begin_shards(CudaPass::Kind kind, std::span<const ShardWork> shards,
                         millpond_stream stream, Active active) {
    const CudaContext::Scope scope(context_);
    wait_for_tables();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      host_shards()[i] = cuda_shard(shards[i], active(i));
    }
    send_tables(0);
    return begin(kind, stream);
  }

  TileWork& begin(CudaPass::Kind kind, millpond_stream stream) {
    if (staged_ == 0 && !pin_.pinned()) {
      throw Error(MILLPOND_E_MEMORY, "work without device staging",
                  "kernels cannot reach the host tier: " + pin_.why_not())
          .field("options.device_staging_bytes")
          .remedy("Raise the limit of locked memory, or give device_staging_bytes");
    }
    CudaPass pass;
    pass.kind = kind;
    pass.variant = request_.variant;
    pass.pieces = at<const kernels::CudaPiece>(places_.pieces);
    pass.shards = at<const kernels::CudaShard>(places_.shards);
    pass.scalars = scalars();
    pass.host_shards = host_shards();
    work_->begin(pass, stream_of(stream));
    scoped_.target = this;
    return scoped_;
  }

  // For parameters that the host keeps itself: the tile's mains are in host memory now.
  void hand_mains_over(const TileView& tile) {
    const auto host_copies = [&](const Piece& piece) {
      if (copied_.empty()) return false;
      const ShardWork& shard = copied_[piece.shard];
      const bool wanted = work_->kind() == CudaPass::Kind::kWriteModel || shard.active;
      return wanted && shard.model == nullptr && !shard.moments_only;
    };
    const auto pieces = tile.plan->pieces_of(*tile.tile);
    if (std::none_of(pieces.begin(), pieces.end(), host_copies)) return;
    try {
      const Slices slices(tile, 1, kPieceElements);
      for (std::uint64_t i = 0; i < slices.count(); ++i) {
        each_run(tile, slices[i], [&](const PieceRun& run) {
          if (host_copies(*run.piece)) copies_.copy_main(tile, run, copied_[run.piece->shard]);
        });
      }
    } catch (...) {
      const CudaContext::Scope scope(context_);
      work_->abandon();
      throw;
    }
  }

  // The pipeline's calls, with the context current.
  struct Scoped final : TileWork {
    std::uint32_t capacity() const override { return target->work_->capacity(); }
    void start(TileView* tile) override {
      const CudaContext::Scope scope(target->context_);
      target->work_->start(tile);
    }
    TileView* finished(bool wait) override {
      TileView* tile = nullptr;
      {
        const CudaContext::Scope scope(target->context_);
        tile = target->work_->finished(wait);
      }
      if (tile != nullptr) target->hand_mains_over(*tile);
      return tile;
    }
    CudaDevice* target = nullptr;
  };

  CudaRequest request_;
  const CudaPin& pin_;
  CudaContext context_;
  std::uint32_t staged_;
  std::uint64_t place_bytes_;
  std::vector<kernels::CudaPiece> pieces_;
  Places places_;
  HostPieces copies_;
  std::span<const ShardWork> copied_;   // of this visit: whose mains the host may want
  std::optional<PinnedMemory> tables_;  // shards and scalars as the device gets them
  std::optional<CudaTileWork> work_;
  std::optional<CudaArena> arena_;
  std::optional<CudaEvent> sent_;  // the tables have been copied
  Scoped scoped_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(const CudaRequest& request, Host& host,
                                         const CudaPin& pin) {
  if (request.variant == kernels::Variant::kHost) {
    throw Error(MILLPOND_E_UNSUPPORTED, "make a CUDA device",
                "host/1 hands the update to the host in host memory, and this store is on CUDA")
        .field("profile.arithmetic")
        .remedy("Name a variant of CUDA, or keep parameters and gradients on the CPU");
  }
  const char* why_not = "";
  if (!kernels::variant_supported(request.variant, true, &why_not)) {
    throw Error(MILLPOND_E_UNSUPPORTED, "make a CUDA device", why_not)
        .field(kernels::variant_name(request.variant))
        .remedy("Name a variant of CUDA");
  }
  return std::make_unique<CudaDevice>(request, host, pin);
}

}  // namespace millpond::plugin
