// state/1: ranges of a shard's segments as fp32, and its counter.
#include <algorithm>
#include <array>
#include <cstring>

#include "plugin/device/stored_run.h"
#include "plugin/store/carry.h"
#include "plugin/store/runtime.h"
#include "plugin/store/store.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kChunk = 4096;  // elements decoded at a time; a divisor of every block

// The part of a piece that a request names, and where its values lie in the request.
struct Wanted {
  std::uint64_t begin = 0;  // in the piece
  std::uint64_t end = 0;
  std::uint64_t value = 0;
};

Wanted part_of(const Piece& piece, std::uint64_t begin, std::uint64_t count) {
  const std::uint64_t from = std::max(piece.shard_begin, begin);
  const std::uint64_t to = std::min(piece.shard_begin + piece.count, begin + count);
  if (from >= to) return {};
  return {from - piece.shard_begin, to - piece.shard_begin, from - begin};
}

// Calls body(run, elements of it, first and last wanted element of it, values' index) for chunks of
// whole groups that together hold the part.
template <class Body>
void for_chunks(const TileView& view, const Piece& piece, std::uint32_t segment, const Wanted& part,
                Body&& body) {
  const std::uint64_t first = part.begin / kernels::kGroupElements * kernels::kGroupElements;
  for (std::uint64_t at = first; at < part.end;) {
    const std::uint64_t in_block = (piece.tile_begin + at) % kChunk;
    const std::uint64_t count = std::min(kChunk - in_block, piece.count - at);
    const kernels::StoredRun run = stored_run(view, segment, piece.tile_begin + at);
    const std::uint64_t from = std::max(at, part.begin), to = std::min(at + count, part.end);
    body(run, count, from - at, to - at, part.value + (from - part.begin));
    at += count;
  }
}

}  // namespace

// The tiles that hold the range, checked.
std::vector<std::uint32_t> Store::tiles_of_range(std::uint32_t shard, std::uint32_t segment,
                                                 std::uint64_t begin, std::uint64_t count,
                                                 const void* values, const char* operation) const {
  const auto refuse = [&](const char* field, const std::string& reason) {
    return Error(MILLPOND_E_ARGUMENT, operation, reason).path(uid_).field(field);
  };
  const Shard& profile = held_->profile.shards[shard];
  if (segment >= kSegments) {
    throw refuse("segment", "there are three segments").want(kSegments - 1, segment);
  }
  if (segment == MILLPOND_SEGMENT_MAIN && profile.kind == ShardKind::kMomentsOnly) {
    throw refuse("segment",
                 "the parameter " + profile.key + " is its own main, the store has none");
  }
  if (begin > profile.numel() || count > profile.numel() - begin) {
    throw refuse("count", "the range ends behind the shard's end")
        .at(begin)
        .want(profile.numel(), begin > UINT64_MAX - count ? UINT64_MAX : begin + count);
  }
  if (values == nullptr && count != 0) throw refuse("values", "the pointer is NULL");
  if (count == 0) return {};
  const Plan& plan = held_->streamed->plan();
  const ShardPlace& place = plan.places[shard];
  const std::uint32_t first = plan.buckets[place.bucket].first_tile;
  const std::uint64_t size = plan.options.tile_elements;
  std::vector<std::uint32_t> tiles;
  for (std::uint64_t t = (place.offset + begin) / size;
       t <= (place.offset + begin + count - 1) / size; ++t) {
    tiles.push_back(first + static_cast<std::uint32_t>(t));
  }
  return tiles;
}

void Store::require_values(const char* operation) {
  require_awake(operation);
  require_state(operation);
  require_healthy(operation);
}

void Store::read_state(std::uint64_t shard_id, std::uint32_t segment, std::uint64_t begin,
                       std::uint64_t count, float* values) {
  require_values("read state");
  const std::uint32_t shard = shard_index(shard_id, "read state");
  const auto tiles = tiles_of_range(shard, segment, begin, count, values, "read state");
  if (tiles.empty()) return;
  CallOnTile read([&](TileView& view) {
    for (const Piece& piece : view.plan->pieces_of(*view.tile)) {
      if (piece.shard != shard) continue;
      const Wanted part = part_of(piece, begin, count);
      if (part.begin == part.end) continue;
      if (segment != MILLPOND_SEGMENT_MAIN && !view.moments_present) {
        std::fill_n(values + part.value, part.end - part.begin, 0.0f);
        continue;
      }
      for_chunks(view, piece, segment, part,
                 [&](const kernels::StoredRun& run, std::uint64_t elements, std::uint64_t from,
                     std::uint64_t to, std::uint64_t value) {
                   std::array<float, kChunk> decoded;
                   kernels::decode(run, decoded.data(), elements);
                   std::copy(decoded.data() + from, decoded.data() + to, values + value);
                 });
    }
  });
  runtime_.pipeline().visit(*held_->streamed, tiles, Access::kRead, read, nullptr);
}

void Store::write_state(std::uint64_t shard_id, std::uint32_t segment, std::uint64_t begin,
                        std::uint64_t count, const float* values) {
  require_values("write state");
  const std::uint32_t shard = shard_index(shard_id, "write state");
  const auto tiles = tiles_of_range(shard, segment, begin, count, values, "write state");
  if (tiles.empty()) return;
  CallOnTile write([&](TileView& view) {
    if (segment != MILLPOND_SEGMENT_MAIN && !view.moments_present) {
      zero_moments(view);
      view.moments_present = true;
    }
    view.dirty = true;
    for (const Piece& piece : view.plan->pieces_of(*view.tile)) {
      if (piece.shard != shard) continue;
      const Wanted part = part_of(piece, begin, count);
      if (part.begin == part.end) continue;
      for_chunks(view, piece, segment, part,
                 [&](const kernels::StoredRun& run, std::uint64_t elements, std::uint64_t from,
                     std::uint64_t to, std::uint64_t value) {
                   std::array<float, kChunk> decoded;
                   kernels::decode(run, decoded.data(), elements);
                   std::copy_n(values + value, to - from, decoded.data() + from);
                   kernels::encode(decoded.data(), run, elements,
                                   segment == MILLPOND_SEGMENT_EXP_AVG_SQ);
                 });
    }
  });
  try {
    runtime_.pipeline().visit(*held_->streamed, tiles, Access::kUpdate, write, nullptr);
  } catch (const std::exception& error) {
    poison(std::string("writing state failed: ") + error.what());
    throw;
  }
}

std::uint64_t Store::get_step(std::uint64_t shard_id) {
  require_values("get step");
  return held_->steps[shard_index(shard_id, "get step")];
}

void Store::set_step(std::uint64_t shard_id, std::uint64_t step) {
  require_values("set step");
  const std::uint32_t shard = shard_index(shard_id, "set step");
  const std::vector<Shard>& shards = held_->profile.shards;
  const std::uint64_t group_id = shards[shard].group_id;
  const auto group = std::find_if(held_->profile.groups.begin(), held_->profile.groups.end(),
                                  [&](const Group& candidate) { return candidate.id == group_id; });
  if (group == held_->profile.groups.end() || !group->counter_per_group) {
    held_->steps[shard] = step;
    return;
  }
  // One counter for the group.
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].group_id == group_id) held_->steps[i] = step;
  }
}

void Store::plan_figures(millpond_plan_figures* figures) const {
  if (held_ == nullptr) return;
  const Plan& plan = held_->streamed->plan();
  figures->shards = held_->profile.shards.size();
  figures->elements = plan.elements;
  figures->buckets = plan.buckets.size();
  figures->tiles = plan.tiles.size();
  figures->tile_elements = plan.options.tile_elements;
  figures->block_elements = plan.options.block_elements;
  figures->tile_bytes = plan.max_tile_bytes;
  figures->state_bytes = plan.state_bytes;
  figures->tier_tiles = held_->streamed->tier_tiles();
}

}  // namespace millpond::plugin
