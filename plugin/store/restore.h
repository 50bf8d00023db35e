// A checkpoint's store against the live one: which shard is which, and the bytes' way into tiles.
#ifndef MILLPOND_PLUGIN_STORE_RESTORE_H_
#define MILLPOND_PLUGIN_STORE_RESTORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/store_reader.h"
#include "plugin/guard/profile.h"
#include "plugin/pipeline/pipeline.h"

namespace millpond::plugin {

// For every live shard the index of the same shard in the manifest: by identity (key, global shape,
// box, flat range, kind), whatever position, group or bucket. Throws Error(E_MISSING, E_MISMATCH)
// naming the first parameter that is missing, has another shape, range or kind, or is too many.
std::vector<std::uint32_t> match_checkpoint(const checkpoint::Manifest& manifest,
                                            const Profile& live, const std::string& path);

// Throws Error(E_MISMATCH) unless the formats are the same or `convert` is set.
void check_storage(const checkpoint::Manifest& manifest, const LayoutOptions& live, bool convert,
                   const std::string& path);

// Fills tiles of a new state (Access::kOverwrite) from verified blocks.
class Restorer {
 public:
  // `source` is match_checkpoint's answer. All are borrowed.
  Restorer(checkpoint::StoreReader& reader, const std::vector<std::uint32_t>& source)
      : reader_(reader), source_(source), values_(kChunk) {}

  bool brings_moments(const Plan& plan, const Tile& tile) const;
  void fill(TileView& tile);

 private:
  static constexpr std::uint64_t kChunk = 4096;  // elements converted at a time

  void copy(const TileView& tile, const Piece& piece, std::uint32_t segment);
  void put(const TileView& tile, std::uint32_t segment, std::uint64_t element,
           const checkpoint::VerifiedRun& run);

  checkpoint::StoreReader& reader_;
  const std::vector<std::uint32_t>& source_;
  std::vector<float> values_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_RESTORE_H_
