#include "plugin/store/restore.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <tuple>
#include <utility>

#include "plugin/device/stored_run.h"
#include "plugin/store/carry.h"

namespace millpond::plugin {

Restorer::Restorer(const ShardSources& sources) : sources_(sources), readers_(kReaders) {}

bool Restorer::brings_moments(const Plan& plan, const Tile& tile) const {
  const auto pieces = plan.pieces_of(tile);
  return std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    const auto& sources = sources_.of(piece.shard);
    return piece.count != 0 &&
           std::any_of(sources.begin(), sources.end(), [&](const ShardSource& source) {
             return sources_.store(source).moments_present(source.shard);
           });
  });
}

void Restorer::fill(TileView& tile) {
  if (brings_moments(*tile.plan, *tile.tile)) {
    zero_moments(tile);
    tile.moments_present = true;
  }
  for (std::uint32_t s = 0; s < kSegments; ++s) {
    if (tile.tile->bytes[s] == 0 || (s != MILLPOND_SEGMENT_MAIN && !tile.moments_present)) continue;
    fill_segment(tile, s);
  }
  tile.dirty = true;
}

void Restorer::fill_segment(TileView& tile, std::uint32_t segment) {
  copies_.clear();
  groups_.clear();
  const auto pieces = tile.plan->pieces_of(*tile.tile);
  for (const Piece& piece : pieces) {
    if (piece.count != 0) list_piece(tile, piece, segment);
  }
  const auto block_of = [](const Copy& copy) {
    return std::make_tuple(copy.store, copy.bucket, copy.block);
  };
  std::stable_sort(copies_.begin(), copies_.end(),
                   [&](const Copy& a, const Copy& b) { return block_of(a) < block_of(b); });
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (i == 0 || block_of(copies_[i]) != block_of(copies_[i - 1])) groups_.push_back(i);
  }
  const bool through_fp32 = std::any_of(copies_.begin(), copies_.end(),
                                        [](const Copy& copy) { return copy.through_fp32; });
  if (through_fp32) values_.assign(tile.tile->elements, 0.0F);
  readers_.run_or_throw(groups_.size(), [&](std::uint64_t i) {
    const std::size_t last = i + 1 < groups_.size() ? groups_[i + 1] : copies_.size();
    read_block(tile, segment, groups_[i], last);
  });
  if (!through_fp32) return;
  for (const Piece& piece : pieces) {
    if (piece.count != 0) encode_piece(tile, piece, segment);
  }
}

void Restorer::list_piece(const TileView& tile, const Piece& piece, std::uint32_t segment) {
  const std::size_t begin = copies_.size();
  const kernels::Storage to = tile.plan->options.storage[segment];
  bool through_fp32 = false;
  for (const ShardSource& source : sources_.of(piece.shard)) {
    checkpoint::StoreReader& store = sources_.store(source);
    const checkpoint::Manifest& manifest = store.manifest();
    if (segment != MILLPOND_SEGMENT_MAIN && !store.moments_present(source.shard)) continue;
    const checkpoint::ShardRecord& record = manifest.shards[source.shard];
    const kernels::Storage from = manifest.storage[segment];
    checkpoint::for_each_common_run(
        sources_.part(piece.shard), source.part, piece.shard_begin, piece.shard_begin + piece.count,
        [&](const checkpoint::CommonRun& run) {
          for (std::uint64_t done = 0; done < run.count;) {
            const std::uint64_t element = record.offset + run.b + done;
            Copy copy{source.store,
                      record.bucket,
                      element / manifest.block_elements,
                      element % manifest.block_elements,
                      piece.tile_begin + (run.a - piece.shard_begin) + done,
                      0,
                      false};
            copy.count = std::min(run.count - done, manifest.block_elements - copy.from);
            // A group keeps its scale where it comes whole, or with the end of both shards.
            const bool at_end = done + copy.count == run.count &&
                                run.a + run.count == sources_.part(piece.shard).numel() &&
                                run.b + run.count == source.part.numel();
            const bool whole = copy.from % kernels::kGroupElements == 0 &&
                               copy.to % kernels::kGroupElements == 0 &&
                               (copy.count % kernels::kGroupElements == 0 || at_end);
            if (from != to || (kernels::is_scaled(to) && !whole)) through_fp32 = true;
            copies_.push_back(copy);
            done += copy.count;
          }
        });
  }
  for (std::size_t i = begin; i < copies_.size(); ++i) copies_[i].through_fp32 = through_fp32;
}

void Restorer::read_block(const TileView& tile, std::uint32_t segment, std::size_t first,
                          std::size_t last) {
  const Copy& what = copies_[first];
  checkpoint::StoreReader& store = *sources_.stores()[what.store];
  const std::uint64_t bytes = store.block_bytes(what.bucket, segment, what.block);
  const std::uint64_t elements =
      checkpoint::elements_of_block(store.manifest(), what.bucket, what.block);
  buffers_.with(bytes, [&](std::span<std::byte> block) {
    store.read_block(what.bucket, segment, what.block, block);
    for (std::size_t i = first; i < last; ++i) {
      copy(tile, segment, copies_[i], block.data(), elements);
    }
  });
  bytes_read_ += bytes;
}

void Restorer::copy(const TileView& tile, std::uint32_t segment, const Copy& what,
                    const std::byte* block, std::uint64_t block_elements) {
  const kernels::Storage from = sources_.stores()[what.store]->manifest().storage[segment];
  // decode and copy_stored only read.
  const kernels::StoredRun source{const_cast<std::byte*>(block), block_elements, what.from, from};
  if (what.through_fp32) {
    const std::uint64_t lead = what.from % kernels::kGroupElements;
    if (!kernels::is_scaled(from) || lead == 0) {
      kernels::decode(source, values_.data() + what.to, what.count);
      return;
    }
    kernels::StoredRun group = source;
    group.first -= lead;
    std::vector<float> values(lead + what.count);
    kernels::decode(group, values.data(), values.size());
    std::memcpy(values_.data() + what.to, values.data() + lead, what.count * sizeof(float));
    return;
  }
  const std::uint64_t in_block = tile.plan->options.block_elements;
  const std::uint64_t item = kernels::item_bytes(from);
  for (std::uint64_t done = 0; done < what.count;) {
    const std::uint64_t element = what.to + done;
    const std::uint64_t aligned = element / kernels::kGroupElements * kernels::kGroupElements;
    kernels::StoredRun to = stored_run(tile, segment, aligned);
    const std::uint64_t first = to.first + (element - aligned);
    const std::uint64_t count = std::min(what.count - done, in_block - first);
    if (kernels::is_scaled(from)) {
      kernels::StoredRun part = source;
      part.first += done;
      kernels::copy_stored(part, to, count);
    } else {
      std::memcpy(to.block + first * item, block + (what.from + done) * item, count * item);
    }
    done += count;
  }
}

void Restorer::encode_piece(const TileView& tile, const Piece& piece, std::uint32_t segment) {
  const auto of_piece = [&](const Copy& copy) {
    return copy.through_fp32 && copy.to >= piece.tile_begin &&
           copy.to < piece.tile_begin + piece.count;
  };
  if (std::none_of(copies_.begin(), copies_.end(), of_piece)) return;
  const std::uint64_t in_block = tile.plan->options.block_elements;
  for (std::uint64_t done = 0; done < piece.count;) {
    const kernels::StoredRun to = stored_run(tile, segment, piece.tile_begin + done);
    const std::uint64_t count = std::min(piece.count - done, in_block - to.first);
    kernels::encode(values_.data() + piece.tile_begin + done, to, count,
                    segment == MILLPOND_SEGMENT_EXP_AVG_SQ);
    done += count;
  }
}

}  // namespace millpond::plugin
