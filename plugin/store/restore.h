// The bytes' way from a checkpoint into the tiles of a new state.
#ifndef MILLPOND_PLUGIN_STORE_RESTORE_H_
#define MILLPOND_PLUGIN_STORE_RESTORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugin/core/buffers.h"
#include "plugin/core/thread_pool.h"
#include "plugin/pipeline/pipeline.h"
#include "plugin/store/shard_sources.h"

namespace millpond::plugin {

// Fills tiles of a new state (Access::kOverwrite) from verified blocks, several of which are read
// at once. Elements whose format and whose place in their group of 256 stay the same are copied as
// they are; others go through fp32, which changes nothing where neither format is scaled.
// Memory: a block for each reader, and 12 bytes for each element of a tile.
class Restorer {
 public:
  explicit Restorer(const ShardSources& sources);  // borrowed

  bool brings_moments(const Plan& plan, const Tile& tile) const;
  void fill(TileView& tile);
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  static constexpr std::uint32_t kReaders = 8;
  // Elements of one block of the checkpoint, and where they go.
  struct Copy {
    std::uint32_t store = 0, bucket = 0;
    std::uint64_t block = 0;
    std::uint64_t from = 0;  // element of the block
    std::uint64_t to = 0;    // element of the tile
    std::uint64_t count = 0;
    bool through_fp32 = false;
  };

  void fill_segment(TileView& tile, std::uint32_t segment);
  void list_piece(const TileView& tile, const Piece& piece, std::uint32_t segment);
  void encode_piece(const TileView& tile, const Piece& piece, std::uint32_t segment);
  void read_block(const TileView& tile, std::uint32_t segment, std::size_t first, std::size_t last);
  void copy(const TileView& tile, std::uint32_t segment, const Copy& what, const std::byte* block,
            std::uint64_t block_elements);

  const ShardSources& sources_;
  ThreadPool readers_;
  std::vector<Copy> copies_;         // of the segment at hand
  std::vector<std::size_t> groups_;  // where the copies of each block begin
  std::vector<float> values_;        // of the tile's segment, where copies go through fp32
  Buffers buffers_;                  // of a block
  std::atomic<std::uint64_t> bytes_read_{0};
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_RESTORE_H_
