// Moves tiles between files, the host tier and the work that is done on them, all stages at once on
// different tiles. One pipeline a runtime; its stores share the tier, the engine and the threads.
// Everything that touches streamed state goes through visit(): a step, the first initialisation,
// refresh, state/1, a save's reading and a load's writing.
//
// All of it runs on the thread inside the ABI call; the pool helps with checksums and updates.
// Between calls transfers may still be in flight in the kernel; the next call of any store of the
// runtime picks their results up.
#ifndef MILLPOND_PLUGIN_PIPELINE_PIPELINE_H_
#define MILLPOND_PLUGIN_PIPELINE_PIPELINE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millpond/error.hpp"
#include "millpond/report.h"
#include "plugin/core/thread_pool.h"
#include "plugin/io/engine.h"
#include "plugin/io/scratch.h"
#include "plugin/layout/plan.h"
#include "plugin/pipeline/region.h"
#include "plugin/pipeline/snapshot.h"

namespace millpond::plugin {

class Pipeline;

// One store's streamed state: plan, scratch files, block sums, which tiles have moments, which are
// in the tier. Only the pipeline changes it. Destroying it waits for its transfers and gives its
// places back.
class StreamedState {
 public:
  // `uid` seeds the block sums with bucket, segment and block index (checkpoint/block_sum.h).
  // `files` by bucket, each file_bytes long. verify: check sums at fetch.
  StreamedState(Plan plan, std::string uid, std::vector<Fd> files, std::vector<std::string> paths,
                bool verify);
  ~StreamedState();
  StreamedState(const StreamedState&) = delete;
  StreamedState& operator=(const StreamedState&) = delete;

  const Plan& plan() const;
  const std::string& uid() const;
  bool moments_present(std::uint32_t tile) const;
  // Sums of the blocks as they are in the file; complete after Pipeline::flush.
  std::span<const std::uint64_t> sums(std::uint32_t bucket, std::uint32_t segment) const;
  // The file that is written to, of a bucket; and the one that holds a tile's written contents.
  int fd(std::uint32_t bucket) const;
  int fd_of(std::uint32_t tile) const;
  struct OpenFile {
    int fd = -1;
    bool sole = false;  // nobody else has it: no checkpoint, no save that still reads it
  };
  std::vector<OpenFile> files() const;  // of all generations
  // The error of a transfer that was in flight when a call returned; set once, cleared by
  // destroying the state.
  const std::optional<Error>& failure() const;
  std::uint64_t tier_tiles() const;  // K, set by Pipeline::plan_tier

 private:
  friend class Pipeline;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A tile in memory, as work sees it. Valid from TileWork::start until the tile was returned by
// finished().
struct TileView {
  std::uint32_t index = 0;
  const Tile* tile = nullptr;
  const Plan* plan = nullptr;
  std::byte* memory = nullptr;
  bool moments_present =
      false;           // kUpdate and kOverwrite: set it when exp_avg and exp_avg_sq were made
  bool dirty = false;  // kUpdate: set it when anything was changed

  std::byte* segment(std::uint32_t s) const { return memory + tile->memory_offset[s]; }
  // Block `b` of the tile, 0-based, of segment s.
  std::byte* block(std::uint32_t s, std::uint64_t b) const {
    return segment(s) +
           b * kernels::block_bytes(plan->options.storage[s], plan->options.block_elements);
  }
};

enum class Access : std::uint8_t {
  kRead,       // bytes are fetched, nothing changes
  kUpdate,     // bytes are fetched; what is marked dirty goes back
  kOverwrite,  // nothing is fetched; the work makes the main segment, and moments if it sets
               // moments_present. The memory it gets is zeroed.
};

// What is done on tiles. On a device, start enqueues upload, kernel and download; on the CPU it
// does the work.
class TileWork {
 public:
  virtual ~TileWork() = default;
  virtual std::uint32_t capacity() const { return 1; }  // tiles started and not finished
  virtual void start(TileView* tile) = 0;
  // A started tile whose memory is final; NULL when none is (and !wait) or none is started.
  virtual TileView* finished(bool wait) = 0;
};

// For synchronous work given as a function.
template <typename Function>
class CallOnTile final : public TileWork {
 public:
  explicit CallOnTile(Function function) : function_(std::move(function)) {}
  void start(TileView* tile) override {
    function_(*tile);
    done_ = tile;
  }
  TileView* finished(bool) override { return std::exchange(done_, nullptr); }

 private:
  Function function_;
  TileView* done_ = nullptr;
};

// A segment of a tile moves in transfers of at most this many bytes: large enough for the drive,
// small enough that an engine of threads works on several.
inline constexpr std::uint64_t kMostTransferBytes = 4 << 20;

struct PipelineOptions {
  std::uint64_t host_memory_bytes = 0;  // cap of the region; 0: as much as the plan can use
  // The ring is max(4 places, this), at most all places: only what a step needs to begin reading
  // before its first flush is through, since the places of held tiles join it as the step runs.
  std::uint64_t ring_bytes = 32 << 20;
  // Fetched at once, and by how much flushes may run ahead of fetches: max(2 tiles, this). A drive
  // is at its rate with 8 MiB in flight; the rest covers the time in which the caller's thread
  // works on a tile and does not look at the engine.
  std::uint64_t depth_bytes = 64 << 20;
  // For a save to write a tile that is wanted for something else.
  std::chrono::milliseconds patience{60'000};
};

class Pipeline {
 public:
  Pipeline(const PipelineOptions& options, Engine& engine, ThreadPool& pool);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Divides the region anew among these stores: flushes everything (errors stay in failure()), maps
  // min(cap, what the plans can use), gives each store its K in proportion to its tiles. Throws
  // Error(E_MEMORY) naming the option when fewer than 2 places fit; nothing has changed then. Only
  // outside steps. With no stores the region is unmapped. While suspended nothing is mapped.
  void plan_tier(std::span<StreamedState* const> stores);

  // Runs work over these tiles (indices ascending), in an order of the pipeline's choice. At the
  // end K tiles at most stay, dirty where they were changed: kUpdate and kOverwrite keep those that
  // the next visit meets first, kRead keeps what was held. Tiles not named are not touched, except
  // that they may leave the tier for room. Flushes may still be in flight on return. Throws the
  // state's failure() if there is one, else the first error of work or of a transfer, after
  // everything started has come to rest. kUpdate and kOverwrite make it the state's failure():
  // contents that were not written are gone (the caller poisons). After kRead the state is as good
  // as before. figures may be NULL; else tiles, bytes and seconds are added to it, and bound_by is
  // set from the sums. waiting_seconds is all that the calling thread spent on a stage or waiting
  // for it.
  void visit(StreamedState& state, std::span<const std::uint32_t> tiles, Access access,
             TileWork& work, millpond_step_figures* figures);

  // Every dirty tile of the state is in its file, and nothing of it is in flight. The tiles stay in
  // the tier, clean. Throws the state's failure().
  void flush(StreamedState& state);
  // Nothing of any store is in flight; errors stay in failure() of their states.
  void settle();
  // Forgets the state's tiles in the tier without writing them; waits for what is in flight.
  void discard(StreamedState& state);

  // For a save: the state goes on in `files` (by bucket, reserved) and what it holds now stays as
  // it is until the snapshot's job is through. Waits for transfers in flight, writes nothing: dirty
  // tiles stay where they are, and a visit that wants to change one waits until the job has written
  // it. Works while suspended. Throws the state's failure(), Error(E_TIMEOUT); then nothing
  // changed.
  std::shared_ptr<Snapshot> freeze(StreamedState& state, std::vector<Fd> files,
                                   std::vector<std::string> paths);
  // The snapshot's job has ended. `complete`: the frozen files have everything, older ones are not
  // read any more. Nothing where the snapshot is not the state's newest.
  void thaw(StreamedState& state, const Snapshot& snapshot, bool complete);
  // Generations that nothing is read from any more, not by a save either. The spare is the newest
  // of them that is `ours`: its files can serve the next one. NULL when there is none, or while
  // tiles are being fetched.
  std::shared_ptr<Generation> take_spare(StreamedState& state) noexcept;
  // Any other, oldest first: to be closed, which may take long. Allocates nothing.
  std::shared_ptr<Generation> take_idle(StreamedState& state) noexcept;

  // Flush everything, unmap the region (phase/1), and map it again. Between them visits of states
  // with tiles throw Error(E_STATE); all contents are in the files. A suspend that cannot write
  // throws and keeps the memory; a resume that gets no memory throws and can be tried again.
  void suspend();
  void resume();

  // Told of the region from now on, and of what is mapped now. Borrowed, and outlives the pipeline.
  void use_pin(RegionPin* pin);

  std::uint64_t host_bytes() const;
  std::uint32_t places() const;
  std::uint32_t ring_places() const;
  std::uint64_t place_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PIPELINE_PIPELINE_H_
