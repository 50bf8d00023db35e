#include "plugin/store/restore.h"

#include <algorithm>
#include <unordered_map>

#include "millpond/error.hpp"
#include "millpond/host.h"
#include "plugin/device/stored_run.h"
#include "plugin/store/carry.h"
#include "plugin/store/tile_reader.h"

namespace millpond::plugin {
namespace {

std::string list(const std::vector<std::uint64_t>& numbers) {
  std::string text = "[";
  for (const std::uint64_t number : numbers) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(number);
  }
  return text + "]";
}

std::string range(std::uint64_t begin, std::uint64_t end) {
  return std::to_string(begin) + ".." + std::to_string(end);
}

ShardKind kind_of(const checkpoint::ShardRecord& record) {
  return record.moments_only ? ShardKind::kMomentsOnly : ShardKind::kMainAndMoments;
}

// The shards of a manifest as a profile has them.
Profile shards_of(const checkpoint::Manifest& manifest) {
  Profile profile;
  for (const checkpoint::ShardRecord& record : manifest.shards) {
    Shard shard;
    shard.key = record.key;
    shard.global_shape = record.global_shape;
    shard.box_offset = record.box_offset;
    shard.box_shape = record.box_shape;
    shard.flat_begin = record.flat_begin;
    shard.flat_end = record.flat_end;
    shard.kind = kind_of(record);
    profile.shards.push_back(std::move(shard));
  }
  return profile;
}

// What differs between a live shard and the checkpoint's shard of the same key.
std::string difference(const checkpoint::ShardRecord& saved, const Shard& live) {
  const auto differ = [](const char* what, const std::string& a, const std::string& b) {
    return std::string("its ") + what + " is " + a + " in the checkpoint and " + b +
           " in the store";
  };
  if (saved.global_shape != live.global_shape) {
    return differ("global shape", list(saved.global_shape), list(live.global_shape));
  }
  if (saved.box_offset != live.box_offset || saved.box_shape != live.box_shape) {
    return differ("local box", list(saved.box_offset) + "+" + list(saved.box_shape),
                  list(live.box_offset) + "+" + list(live.box_shape));
  }
  if (saved.flat_begin != live.flat_begin || saved.flat_end != live.flat_end) {
    return differ("flat range", range(saved.flat_begin, saved.flat_end),
                  range(live.flat_begin, live.flat_end));
  }
  return kind_of(saved) == ShardKind::kMomentsOnly
             ? "it is its own main in the checkpoint and has a separate one in the store"
             : "it has a separate main in the checkpoint and is its own in the store";
}

}  // namespace

std::vector<std::uint32_t> match_checkpoint(const checkpoint::Manifest& manifest,
                                            const Profile& live, const std::string& path) {
  std::vector<std::uint32_t> source = match_shards(shards_of(manifest), live);
  std::unordered_map<std::string, const checkpoint::ShardRecord*> by_key;
  for (const checkpoint::ShardRecord& record : manifest.shards) by_key[record.key] = &record;
  std::vector<std::uint8_t> used(manifest.shards.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    const Shard& shard = live.shards[i];
    if (source[i] != kFresh) {
      used[source[i]] = 1;
      continue;
    }
    const auto saved = by_key.find(shard.key);
    if (saved == by_key.end()) {
      throw Error(MILLPOND_E_MISSING, "load", "the parameter is not in the checkpoint")
          .path(path)
          .field(shard.key);
    }
    throw Error(MILLPOND_E_MISMATCH, "load", difference(*saved->second, shard))
        .path(path)
        .field(shard.key);
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i] != 0) continue;
    const checkpoint::ShardRecord& extra = manifest.shards[i];
    throw Error(MILLPOND_E_MISMATCH, "load",
                "the checkpoint has elements " + range(extra.flat_begin, extra.flat_end) +
                    " of the parameter, the store does not")
        .path(path)
        .field(extra.key);
  }
  return source;
}

void check_storage(const checkpoint::Manifest& manifest, const LayoutOptions& live, bool convert,
                   const std::string& path) {
  for (std::uint32_t s = 0; s < kSegments; ++s) {
    if (manifest.storage[s] == live.storage[s] || convert) continue;
    throw Error(MILLPOND_E_MISMATCH, "load",
                std::string(checkpoint::segment_name(s)) + " is stored as " +
                    kernels::storage_name(manifest.storage[s]) + " in the checkpoint and as " +
                    kernels::storage_name(live.storage[s]) + " in the store")
        .path(path)
        .remedy(
            "Set the option \"moments\" as it was, or ask for the conversion "
            "(MILLPOND_IO_CONVERT)");
  }
}

bool Restorer::brings_moments(const Plan& plan, const Tile& tile) const {
  const auto pieces = plan.pieces_of(tile);
  return std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    return piece.count != 0 && reader_.moments_present(source_[piece.shard]);
  });
}

void Restorer::fill(TileView& tile) {
  if (brings_moments(*tile.plan, *tile.tile)) {
    zero_moments(tile);
    tile.moments_present = true;
  }
  for (const Piece& piece : tile.plan->pieces_of(*tile.tile)) {
    if (piece.count == 0) continue;
    if (tile.tile->bytes[MILLPOND_SEGMENT_MAIN] != 0) copy(tile, piece, MILLPOND_SEGMENT_MAIN);
    if (!reader_.moments_present(source_[piece.shard])) continue;
    copy(tile, piece, MILLPOND_SEGMENT_EXP_AVG);
    copy(tile, piece, MILLPOND_SEGMENT_EXP_AVG_SQ);
  }
  tile.dirty = true;
}

void Restorer::copy(const TileView& tile, const Piece& piece, std::uint32_t segment) {
  reader_.read(source_[piece.shard], segment, piece.shard_begin, piece.shard_begin + piece.count,
               [&](const checkpoint::VerifiedRun& run) {
                 put(tile, segment, piece.tile_begin + (run.begin - piece.shard_begin), run);
               });
}

void Restorer::put(const TileView& tile, std::uint32_t segment, std::uint64_t element,
                   const checkpoint::VerifiedRun& run) {
  const std::uint64_t block = tile.plan->options.block_elements;
  for (std::uint64_t done = 0; done < run.count;) {
    const kernels::StoredRun to = stored_run(tile, segment, element + done);
    // decode only reads.
    const kernels::StoredRun from{const_cast<std::byte*>(run.block), run.block_elements,
                                  run.first + done, run.storage};
    std::uint64_t count = std::min(run.count - done, block - to.first);
    if (from.storage != to.storage) {
      count = std::min(count, kChunk);
      kernels::decode(from, values_.data(), count);
      kernels::encode(values_.data(), to, count, segment == MILLPOND_SEGMENT_EXP_AVG_SQ);
    } else {
      kernels::copy_stored(from, to, count);
    }
    done += count;
  }
}

}  // namespace millpond::plugin
