// State that a new bind takes over from an older one: whose it is, and the bytes of it.
#ifndef MILLPOND_PLUGIN_STORE_CARRY_H_
#define MILLPOND_PLUGIN_STORE_CARRY_H_

#include <cstdint>
#include <vector>

#include "plugin/guard/profile.h"
#include "plugin/pipeline/pipeline.h"
#include "plugin/store/tile_reader.h"

namespace millpond::plugin {

inline constexpr std::uint32_t kFresh = UINT32_MAX;

// For every shard of `now` the index of the same shard in `before`, or kFresh. The same: key,
// global shape, box, flat range and kind, whatever position, group or bucket.
std::vector<std::uint32_t> match_shards(const Profile& before, const Profile& now);

// Copies the stored bytes of taken-over shards from the files of one state into tiles of another
// with the same formats and block size. Groups of 256 elements move whole, with their scales.
class Carrier {
 public:
  // `from` must stay flushed. `source` is match_shards' answer.
  Carrier(StreamedState& from, const std::vector<std::uint32_t>& source);

  bool takes_over(const Piece& piece) const { return source_[piece.shard] != kFresh; }
  // Whether the state before has moments of any of the tile's shards, in the elements of the tile.
  bool brings_moments(const Plan& plan, const Tile& tile) const;
  // Access::kOverwrite: all that is taken over. Other pieces have zeros.
  void fill(TileView& tile);

 private:
  void copy(const TileView& tile, const Piece& piece);
  std::uint32_t tile_of(std::uint32_t shard, std::uint64_t element) const;

  StreamedState& from_;
  const std::vector<std::uint32_t>& source_;
  TileReader reader_;
};

// Both moments of every piece := zero, in the stored format. The segments' bytes may be anything
// before.
void zero_moments(const TileView& tile);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_CARRY_H_
