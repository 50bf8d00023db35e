// The inside of a StreamedState: where each tile is and what of it exists.
#ifndef MILLPOND_PLUGIN_PIPELINE_STATE_H_
#define MILLPOND_PLUGIN_PIPELINE_STATE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millpond/error.hpp"
#include "plugin/io/scratch.h"
#include "plugin/layout/plan.h"
#include "plugin/pipeline/pipeline.h"

namespace millpond::plugin {

inline constexpr std::uint32_t kNoPlace = UINT32_MAX;

enum class Where : std::uint8_t {
  kFile,      // only in its file, or nowhere yet
  kFetching,  // on its way into a place
  kResident,  // in a place
  kWorking,   // in a place, and work has it
  kFlushing,  // on its way to its file; the place is freed then, or kept by flush()
};

struct TileState {
  std::uint32_t place = kNoPlace;
  Where where = Where::kFile;
  bool dirty = false;    // memory has what the file has not
  bool summed = false;   // the block sums are those of the memory
  bool landed = false;   // fetched and not yet verified
  bool pinned = false;   // a save may still read the memory: StateCore::snapshot knows
  bool main = false;     // contents that exist: in memory where resident, else in the file
  bool moments = false;  //
  bool file_main = false;
  bool file_moments = false;
  Generation* home = nullptr;  // holds what is in the file
  // of the visit in progress
  bool wanted = false;
  bool keep = false;
  bool fetched = false;
};

// Whether nobody else has the files: no checkpoint, no save that still reads them.
inline bool sole(const std::shared_ptr<Generation>& generation) {
  return generation->ours && generation.use_count() == 1;
}

struct StateCore;

// The pipeline, as a dying state sees it.
class TierOwner {
 public:
  virtual void detach(StateCore& state) noexcept = 0;

 protected:
  ~TierOwner() = default;
};

struct StateCore {
  StateCore(Plan plan_, std::string uid_, std::vector<Fd> files_, std::vector<std::string> paths_,
            bool verify_);

  Plan plan;
  std::string uid;
  std::uint64_t seed = 0;                                // checkpoint::uid_seed
  std::vector<std::shared_ptr<Generation>> generations;  // oldest first; the last one is written to
  std::shared_ptr<Snapshot> snapshot;                    // the newest
  std::vector<std::uint8_t> buffered;  // by bucket: not O_DIRECT, so pages are dropped as they go
  bool verify = true;
  std::vector<TileState> tiles;
  std::vector<std::array<std::vector<std::uint64_t>, kSegments>> sums;  // by bucket and segment
  std::optional<Error> failure;
  std::uint64_t kept = 0;  // K
  TierOwner* owner = nullptr;

  // Whether segment s of the tile has contents.
  bool exists(std::uint32_t tile, std::uint32_t s) const {
    const TileState& t = tiles[tile];
    return plan.tiles[tile].bytes[s] != 0 && (s == 0 ? t.main : t.moments);
  }
  std::uint64_t existing_bytes(std::uint32_t tile) const {
    std::uint64_t bytes = 0;
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      if (exists(tile, s)) bytes += plan.tiles[tile].bytes[s];
    }
    return bytes;
  }
  std::uint64_t block_bytes(std::uint32_t tile, std::uint32_t s, std::uint64_t block) const {
    const Bucket& bucket = plan.buckets[plan.tiles[tile].bucket];
    return kernels::block_bytes(
        plan.options.storage[s],
        plan.elements_of_block(bucket, plan.tiles[tile].first_block + block));
  }
  Generation& live() const { return *generations.back(); }
  void settle_in(std::uint32_t tile, Generation* home) {
    --tiles[tile].home->tiles;
    ++home->tiles;
    tiles[tile].home = home;
  }
  void fail(const Error& error) {
    if (!failure) failure = error;
  }
};

struct StreamedState::Impl : StateCore {
  using StateCore::StateCore;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PIPELINE_STATE_H_
