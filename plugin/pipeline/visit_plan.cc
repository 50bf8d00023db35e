// What a visit decides before it moves anything.
#include <algorithm>

#include "millpond/base.h"
#include "plugin/pipeline/visit.h"

namespace millpond::plugin {

// Towards the tiles that are not held: those that are held come first.
bool Visit::ascending(std::span<const std::uint32_t> tiles) const {
  if (access_ != Access::kUpdate) return true;
  std::uint64_t held = 0;
  std::uint64_t sum = 0;
  for (std::uint32_t t = 0; t < state_.tiles.size(); ++t) {
    if (state_.tiles[t].where != Where::kResident) continue;
    ++held;
    sum += t;
  }
  const std::uint64_t twice_middle = std::uint64_t{tiles.front()} + tiles.back();
  return 2 * sum <= twice_middle * held;
}

void Visit::choose_kept(bool ascending) {
  const auto count = static_cast<std::uint32_t>(state_.tiles.size());
  std::uint64_t room = state_.kept;
  if (access_ == Access::kRead) {
    // Nothing would be won by exchanging what is held, and dirty tiles need not be written.
    for (TileState& t : state_.tiles) {
      t.keep = t.where == Where::kResident;
      if (t.keep) --room;
    }
  }
  for (std::uint32_t i = 0; i < count && room != 0; ++i) {
    TileState& t = state_.tiles[ascending ? count - 1 - i : i];
    if (t.keep || (!t.wanted && t.where != Where::kResident)) continue;
    t.keep = true;
    --room;
  }
}

void Visit::line_up(std::uint32_t tile) {
  TileState& t = state_.tiles[tile];
  if (t.where == Where::kResident) {
    if (access_ != Access::kOverwrite) {
      ++hits_;
      hit_bytes_ += state_.existing_bytes(tile);
    }
    (t.keep ? room_.late : room_.soon).push(tile);
  } else {
    (t.where == Where::kFlushing ? room_.blocked : room_.fetches).push(tile);
  }
}

void Visit::prepare(std::span<const std::uint32_t> tiles) {
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    if (tiles[i] >= state_.tiles.size() || (i != 0 && tiles[i] <= tiles[i - 1])) {
      throw Error(MILLPOND_E_INTERNAL, "visit tiles", "tiles must ascend and exist")
          .want(state_.tiles.size(), tiles[i]);
    }
  }
  for (auto* queue : {&room_.fetches, &room_.blocked, &room_.soon, &room_.late, &room_.flushes}) {
    queue->clear();
  }
  for (TileState& t : state_.tiles) t.wanted = t.keep = t.fetched = false;
  for (const std::uint32_t tile : tiles) state_.tiles[tile].wanted = true;
  remaining_ = static_cast<std::uint32_t>(tiles.size());
  capacity_ = std::max<std::uint32_t>(work_.capacity(), 1);

  const bool up = ascending(tiles);
  choose_kept(up);
  for (std::uint32_t tile = 0; tile < state_.tiles.size(); ++tile) {
    TileState& t = state_.tiles[tile];
    if (t.wanted || t.keep || t.where != Where::kResident) continue;
    if (t.dirty) {
      room_.flushes.push(tile);
    } else {
      mover_.release(state_, tile);
    }
  }
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    line_up(tiles[up ? i : tiles.size() - 1 - i]);
  }
}

}  // namespace millpond::plugin
