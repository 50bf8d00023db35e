#include "plugin/device/cuda/tile_work.h"

#include <algorithm>

#include "millpond/host.h"
#include "plugin/device/cuda_tables.h"

namespace millpond::plugin {
namespace {

// Kernels on mapped memory that are under way at once. Each has the grid below: enough loads in
// flight for the bus, and most of the device left to others.
constexpr std::uint32_t kMappedTiles = 4;
constexpr std::uint32_t kMappedBlocks = 32;
constexpr std::size_t kMappedStreams = 2;

}  // namespace

CudaTileWork::CudaTileWork(std::uint32_t staged, std::uint64_t place_bytes, std::uint32_t blocks)
    : blocks_(staged == 0 ? std::min(kMappedBlocks, blocks) : blocks),
      place_bytes_(place_bytes),
      staged_(staged != 0),
      kernels_(staged != 0 ? 1 : kMappedStreams),
      slots_(staged != 0 ? staged : kMappedTiles) {}

void CudaTileWork::use_staging(std::byte* staging, cudaStream_t stream) {
  staging_ = staging;
  ready_.record(stream);
  ready_.hold(upload_.get());
  ready_.hold(download_.get());
  for (const CudaStream& kernel : kernels_) ready_.hold(kernel.get());
}

void CudaTileWork::begin(const CudaPass& pass, cudaStream_t stream) {
  pass_ = pass;
  seconds_ = {};
  ready_.record(stream);
  tables_.record(table_stream());
  for (const CudaStream& kernel : kernels_) {
    ready_.hold(kernel.get());
    tables_.hold(kernel.get());
  }
}

void CudaTileWork::order(cudaStream_t stream) {
  for (const CudaStream& kernel : kernels_) {
    last_.record(kernel.get());
    last_.hold(stream);
  }
}

bool CudaTileWork::any_active(const TileView& view) const {
  const auto pieces = view.plan->pieces_of(*view.tile);
  return std::any_of(pieces.begin(), pieces.end(),
                     [&](const Piece& piece) { return pass_.host_shards[piece.shard].active; });
}

std::uint64_t CudaTileWork::bytes_before(const TileView& view) const {
  const bool moments = pass_.kind == CudaPass::Kind::kUpdate && view.moments_present;
  return moments ? view.tile->total_bytes : view.tile->bytes[MILLPOND_SEGMENT_MAIN];
}

std::uint64_t CudaTileWork::bytes_after(const TileView& view) const {
  switch (pass_.kind) {
    case CudaPass::Kind::kUpdate:
      return view.tile->total_bytes;
    case CudaPass::Kind::kFillMain:
      return view.tile->bytes[MILLPOND_SEGMENT_MAIN];
    case CudaPass::Kind::kWriteModel:
      break;
  }
  return 0;
}

void CudaTileWork::start(TileView* tile) {
  Slot& slot = slots_[started_ % slots_.size()];
  slot.tile = tile;
  slot.untouched = !any_active(*tile);
  if (!slot.untouched) {
    try {
      enqueue(slot, *tile);
    } catch (...) {
      abandon();  // what was enqueued still works on the tile's memory
      throw;
    }
  }
  ++started_;
}

void CudaTileWork::enqueue(Slot& slot, TileView& view) {
  const cudaStream_t kernel = kernels_[started_ % kernels_.size()].get();
  const std::uint64_t before = bytes_before(view);
  const std::uint64_t after = bytes_after(view);
  slot.uploads = staged_ && before != 0;
  slot.downloads = staged_ && after != 0;
  std::byte* const place =
      staged_ ? staging_ + started_ % slots_.size() * place_bytes_ : view.memory;
  if (slot.uploads) {
    slot.upload_begin.record(upload_.get());
    check_cuda(cudaMemcpyAsync(place, view.memory, before, cudaMemcpyHostToDevice, upload_.get()),
               "upload a tile", before);
    slot.uploaded.record(upload_.get());
    slot.uploaded.hold(kernel);
  }
  slot.kernel_begin.record(kernel);
  if (staged_ && after > before) {
    // Gaps and padding of what is made now are zero, whatever tile was in this place.
    check_cuda(cudaMemsetAsync(place + before, 0, after - before, kernel), "clear moments");
  }
  launch(cuda_tile(*view.plan, *view.tile, place, pass_.pieces, pass_.shards), view.moments_present,
         kernel);
  slot.kernel_end.record(kernel);
  if (!slot.downloads) return;
  slot.kernel_end.hold(download_.get());
  slot.download_begin.record(download_.get());
  check_cuda(cudaMemcpyAsync(view.memory, place, after, cudaMemcpyDeviceToHost, download_.get()),
             "download a tile", after);
  slot.downloaded.record(download_.get());
}

void CudaTileWork::launch(kernels::CudaTile tile, bool moments_present, cudaStream_t stream) {
  tile.moments_present = moments_present;
  switch (pass_.kind) {
    case CudaPass::Kind::kUpdate:
      return check_cuda(
          kernels::update_on_cuda(pass_.variant, tile, pass_.scalars, blocks_, stream),
          "update a tile");
    case CudaPass::Kind::kFillMain:
      return check_cuda(kernels::fill_main_on_cuda(tile, blocks_, stream), "make mains");
    case CudaPass::Kind::kWriteModel:
      return check_cuda(kernels::write_model_on_cuda(tile, blocks_, stream), "write parameters");
  }
}

TileView* CudaTileWork::finished(bool wait) {
  if (ended_ == started_) return nullptr;
  Slot& slot = slots_[ended_ % slots_.size()];
  if (!slot.untouched) {
    const CudaEvent& end = slot.downloads ? slot.downloaded : slot.kernel_end;
    const cudaError_t error = wait ? cudaEventSynchronize(end.get()) : cudaEventQuery(end.get());
    if (error == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());  // no failure, and no launch may report it
      return nullptr;
    }
    if (error != cudaSuccess) {
      abandon();
      throw cuda_error(error, "wait for a tile");
    }
    account(slot);
    const bool update = pass_.kind == CudaPass::Kind::kUpdate;
    slot.tile->moments_present |= update;
    slot.tile->dirty |= pass_.kind != CudaPass::Kind::kWriteModel;
  }
  ++ended_;
  return slot.tile;
}

void CudaTileWork::account(const Slot& slot) {
  if (slot.uploads) seconds_.upload += slot.uploaded.seconds_since(slot.upload_begin);
  seconds_.kernel += slot.kernel_end.seconds_since(slot.kernel_begin);
  if (slot.downloads) seconds_.download += slot.downloaded.seconds_since(slot.download_begin);
}

void CudaTileWork::abandon() noexcept {
  static_cast<void>(cudaStreamSynchronize(upload_.get()));
  for (const CudaStream& kernel : kernels_) static_cast<void>(cudaStreamSynchronize(kernel.get()));
  static_cast<void>(cudaStreamSynchronize(download_.get()));
  static_cast<void>(cudaGetLastError());
  ended_ = started_;
}

}  // namespace millpond::plugin
