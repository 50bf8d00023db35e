// The contents of a newly bound state: mains from the given ones or the model, and everything of
// shards that are taken over, bucket by bucket and tile by tile.
#include <algorithm>
#include <optional>

#include "plugin/store/binding.h"
#include "plugin/store/carry.h"
#include "plugin/store/counted_work.h"
#include "plugin/store/runtime.h"

namespace millpond::plugin {

void Binding::visit(const std::vector<std::uint32_t>& tiles, Access access, TileWork& work) {
  if (tiles.empty()) return;
  CountedWork watched(work, runtime_.host(), "bind", &filled_bytes_, plan_.state_bytes);
  runtime_.pipeline().visit(*fresh_, tiles, access, watched, nullptr);
}

void Binding::fill() {
  std::optional<Carrier> carrier;
  if (kept_ != 0) carrier.emplace(*store_.streamed(), source_);
  for (std::uint32_t b = 0; b < plan_.buckets.size(); ++b) {
    fill_bucket(b, carrier ? &*carrier : nullptr);
    release_mains(plan_.buckets[b].shards);
  }
  std::vector<std::uint32_t> rest;
  for (std::uint32_t i = 0; i < profile_.shards.size(); ++i) {
    if (released_[i] == 0) rest.push_back(i);
  }
  release_mains(rest);
  runtime_.host().progress("bind", plan_.state_bytes, plan_.state_bytes);
}

void Binding::fill_bucket(std::uint32_t b, Carrier* carrier) {
  const Bucket& bucket = plan_.buckets[b];
  std::vector<std::uint32_t> from_model, carried, mixed;
  for (std::uint32_t t = bucket.first_tile; t < bucket.first_tile + bucket.tiles; ++t) {
    const Tile& tile = plan_.tiles[t];
    const auto pieces = plan_.pieces_of(tile);
    const auto taken = std::count_if(pieces.begin(), pieces.end(), [&](const Piece& piece) {
      return carrier != nullptr && carrier->takes_over(piece);
    });
    if (bucket.moments_only) {
      // Without moments there is nothing in such a tile, and nothing reads it.
      if (taken != 0 && carrier->brings_moments(plan_, tile)) carried.push_back(t);
      continue;
    }
    if (taken == 0) {
      from_model.push_back(t);
    } else {
      carried.push_back(t);
      if (static_cast<std::size_t>(taken) != pieces.size()) mixed.push_back(t);
    }
  }
  // Of this bucket: mains given for another one may be gone already.
  std::vector<std::uint8_t> fresh(profile_.shards.size());
  for (const std::uint32_t i : bucket.shards) fresh[i] = source_[i] == kFresh;
  if (!from_model.empty()) {
    visit(from_model, Access::kOverwrite, device_->begin_fill_main(work_.shards, fresh, stream_));
  }
  if (!carried.empty()) {
    CallOnTile carry([&](TileView& tile) { carrier->fill(tile); });
    visit(carried, Access::kOverwrite, carry);
  }
  if (!mixed.empty()) {
    visit(mixed, Access::kUpdate, device_->begin_fill_main(work_.shards, fresh, stream_));
  }
}

void Binding::release_mains(const std::vector<std::uint32_t>& shards) {
  std::vector<std::uint64_t> ids;
  for (const std::uint32_t i : shards) {
    released_[i] = 1;
    if (work_.shards[i].given_main == nullptr) continue;
    ids.push_back(profile_.shards[i].id);
    work_.shards[i].given_main = nullptr;
  }
  runtime_.host().release_main(store_.uid(), ids);
}

}  // namespace millpond::plugin
