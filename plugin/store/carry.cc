#include "plugin/store/carry.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "plugin/device/stored_run.h"

namespace millpond::plugin {
namespace {

std::string identity_of(const Shard& shard) {
  std::string text = shard.key;
  text.push_back('\0');
  const auto add = [&](std::uint64_t number) { text += std::to_string(number) + ","; };
  const auto add_all = [&](const std::vector<std::uint64_t>& numbers) {
    for (const std::uint64_t number : numbers) add(number);
    text.push_back(';');
  };
  add_all(shard.global_shape);
  add_all(shard.box_offset);
  add_all(shard.box_shape);
  add(shard.flat_begin);
  add(shard.flat_end);
  add(static_cast<std::uint64_t>(shard.kind));
  return text;
}

}  // namespace

std::vector<std::uint32_t> match_shards(const Profile& before, const Profile& now) {
  std::unordered_map<std::string, std::uint32_t> known;
  for (std::uint32_t i = 0; i < before.shards.size(); ++i) {
    known.emplace(identity_of(before.shards[i]), i);
  }
  std::vector<std::uint32_t> source(now.shards.size(), kFresh);
  for (std::uint32_t i = 0; i < now.shards.size(); ++i) {
    const auto found = known.find(identity_of(now.shards[i]));
    if (found != known.end()) source[i] = found->second;
  }
  return source;
}

Carrier::Carrier(StreamedState& from, const std::vector<std::uint32_t>& source)
    : from_(from), source_(source), reader_(from) {}

std::uint32_t Carrier::tile_of(std::uint32_t shard, std::uint64_t element) const {
  const Plan& plan = from_.plan();
  const ShardPlace& place = plan.places[shard];
  return plan.buckets[place.bucket].first_tile +
         static_cast<std::uint32_t>((place.offset + element) / plan.options.tile_elements);
}

bool Carrier::brings_moments(const Plan& plan, const Tile& tile) const {
  for (const Piece& piece : plan.pieces_of(tile)) {
    const std::uint32_t shard = source_[piece.shard];
    if (shard == kFresh || piece.count == 0) continue;
    const std::uint32_t last = tile_of(shard, piece.shard_begin + piece.count - 1);
    for (std::uint32_t t = tile_of(shard, piece.shard_begin); t <= last; ++t) {
      if (from_.moments_present(t)) return true;
    }
  }
  return false;
}

void Carrier::fill(TileView& tile) {
  if (brings_moments(*tile.plan, *tile.tile)) {
    zero_moments(tile);
    tile.moments_present = true;
  }
  for (const Piece& piece : tile.plan->pieces_of(*tile.tile)) {
    if (takes_over(piece)) copy(tile, piece);
  }
  tile.dirty = true;
}

void Carrier::copy(const TileView& view, const Piece& piece) {
  const std::uint32_t shard = source_[piece.shard];
  const Plan& old_plan = from_.plan();
  const std::uint64_t block = view.plan->options.block_elements;
  // Whole groups: the gap behind a shard's end belongs to its last group.
  const std::uint64_t count = kernels::round_up(piece.count, kernels::kGroupElements);
  for (std::uint64_t done = 0; done < count;) {
    const std::uint32_t index = tile_of(shard, piece.shard_begin + done);
    const std::byte* loaded = reader_.load(index);
    static_cast<void>(loaded);
    const Tile& old_tile = old_plan.tiles[index];
    const std::uint64_t from_element =
        old_plan.places[shard].offset + piece.shard_begin + done - old_tile.begin;
    const std::uint64_t to_element = piece.tile_begin + done;
    const std::uint64_t run =
        std::min({count - done, block - from_element % block, block - to_element % block});
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      if (view.tile->bytes[s] == 0) continue;
      if (s != MILLPOND_SEGMENT_MAIN && !from_.moments_present(index)) continue;
      const kernels::StoredRun from = reader_.run_at(s, from_element);
      const kernels::StoredRun to = stored_run(view, s, to_element);
      kernels::copy_stored(from, to, run);
    }
    done += run;
  }
}

void zero_moments(const TileView& view) {
  for (const std::uint32_t s : {MILLPOND_SEGMENT_EXP_AVG, MILLPOND_SEGMENT_EXP_AVG_SQ}) {
    for (std::uint64_t block = 0; block < view.tile->blocks; ++block) {
      kernels::zero_block(stored_run(view, s, block * view.plan->options.block_elements));
    }
  }
}

}  // namespace millpond::plugin
