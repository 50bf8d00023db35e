// Tiles on their way through a device: upload, kernel and download of different tiles at once, each
// on a stream of its own, joined by events. Without staging the kernels work in the pinned host
// tier and nothing is copied.
#ifndef MILLPOND_PLUGIN_DEVICE_CUDA_TILE_WORK_H_
#define MILLPOND_PLUGIN_DEVICE_CUDA_TILE_WORK_H_

#include <cstdint>
#include <vector>

#include "kernels/adam_cuda.h"
#include "plugin/device/cuda/owners.h"
#include "plugin/pipeline/pipeline.h"

namespace millpond::plugin {

// What a visit does on the device.
struct CudaPass {
  enum class Kind : std::uint8_t { kUpdate, kFillMain, kWriteModel };
  Kind kind = Kind::kUpdate;
  kernels::Variant variant = kernels::Variant::kHost;
  const kernels::CudaPiece* pieces = nullptr;  // device addresses
  const kernels::CudaShard* shards = nullptr;
  const kernels::Scalars* scalars = nullptr;
  const kernels::CudaShard* host_shards = nullptr;  // the same table, to look at here
};

class CudaTileWork final : public TileWork {
 public:
  // `staged` tiles at once in places of `place_bytes`; 0: kernels work on the tiles' own memory.
  // `blocks`: the update kernel's grid at most.
  CudaTileWork(std::uint32_t staged, std::uint64_t place_bytes, std::uint32_t blocks);

  // Where staged tiles go. Nothing of it is used before what is on `stream` now.
  void use_staging(std::byte* staging, cudaStream_t stream);
  // Of the next visit. Kernels wait for what is on `stream` now. Nothing may be in flight.
  void begin(const CudaPass& pass, cudaStream_t stream);
  // What is put on `stream` from now on waits for the last kernel.
  void order(cudaStream_t stream);

  std::uint32_t capacity() const override { return static_cast<std::uint32_t>(slots_.size()); }
  // The device's context must be current in these two.
  void start(TileView* tile) override;
  TileView* finished(bool wait) override;
  // Waits for what was started and forgets it, whatever became of it.
  void abandon() noexcept;

  // Seconds since begin() in which each was at work.
  struct Seconds {
    double upload = 0, kernel = 0, download = 0;
  };
  const Seconds& seconds() const { return seconds_; }

  CudaPass::Kind kind() const { return pass_.kind; }
  // Kernels of every tile come after what is put here before begin().
  cudaStream_t table_stream() const { return kernels_.front().get(); }

 private:
  struct Slot {
    TileView* tile = nullptr;
    bool untouched = false;  // no shard of the tile is active
    bool uploads = false, downloads = false;
    CudaEvent upload_begin, uploaded, kernel_begin, kernel_end, download_begin, downloaded;
  };
  std::uint64_t bytes_before(const TileView& view) const;  // that a kernel reads, from the start
  std::uint64_t bytes_after(const TileView& view) const;   // that it leaves
  bool any_active(const TileView& view) const;
  void enqueue(Slot& slot, TileView& view);
  void launch(kernels::CudaTile tile, bool moments_present, cudaStream_t stream);
  void account(const Slot& slot);

  std::uint32_t blocks_;
  std::uint64_t place_bytes_;
  bool staged_;
  std::byte* staging_ = nullptr;
  CudaPass pass_;
  CudaStream upload_, download_;
  std::vector<CudaStream> kernels_;  // two without staging: one kernel's end meets the next's begin
  CudaEvent ready_, tables_, last_;
  std::vector<Slot> slots_;
  std::uint64_t started_ = 0, ended_ = 0;  // tile i is in slot i % slots
  Seconds seconds_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_DEVICE_CUDA_TILE_WORK_H_
