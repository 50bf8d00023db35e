#include "plugin/pipeline/mover.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "plugin/io/os_error.h"

namespace millpond::plugin {
namespace {

std::uint64_t transfers_of_segment(std::uint64_t bytes) {
  return (bytes + kMostTransferBytes - 1) / kMostTransferBytes;
}

}  // namespace

std::uint32_t Mover::transfers_of(const Plan& plan) {
  std::uint64_t most = 0;
  for (const Tile& tile : plan.tiles) {
    std::uint64_t count = 0;
    for (const std::uint64_t bytes : tile.bytes) count += transfers_of_segment(bytes);
    most = std::max(most, count);
  }
  return static_cast<std::uint32_t>(most);
}

void Mover::configure(std::byte* region, std::uint64_t place_bytes, std::uint32_t places,
                      std::uint32_t transfers, bool untouched) {
  places_.assign(places, Place{});
  transfers_.assign(std::size_t{places} * transfers, Transfer{});
  transfers_per_place_ = transfers;
  batch_.reserve(transfers);
  free_.clear();
  lost_.clear();
  free_.reserve(places);
  lost_.reserve(places);
  landed_.reserve(places);
  for (std::uint32_t i = 0; i < places; ++i) {
    places_[i].memory = region + i * place_bytes;
    places_[i].untouched = untouched;
    free_.push_back(places - 1 - i);  // the last is taken first
  }
  if (places != 0) engine_.reserve(transfers_.size());
}

void Mover::take(StateCore& state, std::uint32_t tile) {
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Place& place = places_[index];
  place.state = &state;
  place.tile = tile;
  TileState& t = state.tiles[tile];
  t.place = index;
  t.where = Where::kResident;
}

void Mover::release(StateCore& state, std::uint32_t tile) {
  TileState& t = state.tiles[tile];
  Place& place = places_[t.place];
  if (pinned(state, tile) && !state.snapshot->wait_unpinned(tile, patience_)) {
    place.pinned_by = state.snapshot;
  }
  (place.lost || place.pinned_by != nullptr ? lost_ : free_).push_back(t.place);
  place.state = nullptr;
  t.place = kNoPlace;
  t.where = Where::kFile;
  t.landed = false;
  t.dirty = false;
  t.summed = false;
  t.main = t.file_main;
  t.moments = t.file_moments;
}

bool Mover::pinned(StateCore& state, std::uint32_t tile) {
  TileState& t = state.tiles[tile];
  t.pinned = t.pinned && state.snapshot->pinned(tile);
  return t.pinned;
}

void Mover::wait_unpinned(StateCore& state, std::uint32_t tile) {
  if (pinned(state, tile) && !state.snapshot->wait_unpinned(tile, patience_)) {
    throw save_hangs(state, tile);
  }
}

std::uint64_t Mover::unpinned(const StateCore& state) {
  return state.snapshot == nullptr ? 0 : state.snapshot->unpinned();
}

void Mover::wait_any_unpinned(StateCore& state, std::uint64_t seen, std::uint32_t tile) {
  if (!state.snapshot->wait_any(seen, patience_)) throw save_hangs(state, tile);
}

Error Mover::save_hangs(const StateCore& state, std::uint32_t tile) {
  return Error(MILLPOND_E_TIMEOUT, "wait for a save",
               "a tile that is to be changed is still being written by a save")
      .path(state.live().paths[state.plan.tiles[tile].bucket])
      .remedy("Look at the drive; a new process is needed if it does not answer any more.");
}

bool Mover::holds_pinned() const {
  return std::any_of(lost_.begin(), lost_.end(), [&](std::uint32_t index) {
    const Place& place = places_[index];
    return place.pinned_by != nullptr && place.pinned_by->pinned(place.tile);
  });
}

void Mover::submit(Place& place, bool reading) {
  StateCore& state = *place.state;
  const Tile& tile = state.plan.tiles[place.tile];
  const Generation& files = *state.tiles[place.tile].home;
  const std::size_t index = state.tiles[place.tile].place;
  Transfer* next = &transfers_[index * transfers_per_place_];
  batch_.clear();
  place.reading = reading;
  place.failed = false;
  place.untouched = false;
  for (std::uint32_t s = 0; s < kSegments; ++s) {
    if (!state.exists(place.tile, s)) continue;
    const std::uint64_t count = transfers_of_segment(tile.bytes[s]);
    const std::uint64_t step =
        kernels::round_up((tile.bytes[s] + count - 1) / count, kernels::kPageBytes);
    for (std::uint64_t at = 0; at < tile.bytes[s]; at += step) {
      *next = Transfer{};
      next->kind = reading ? Transfer::Kind::kRead : Transfer::Kind::kWrite;
      next->fd = files.files[tile.bucket].get();
      next->offset = tile.file_offset[s] + at;
      next->memory = place.memory + tile.memory_offset[s] + at;
      next->bytes = std::min(step, tile.bytes[s] - at);
      next->tag = index;
      next->path = files.paths[tile.bucket].c_str();
      (reading ? bytes_read_ : bytes_written_) += next->bytes;
      batch_.push_back(next++);
    }
  }
  place.pending = static_cast<std::uint32_t>(batch_.size());
  ++(reading ? fetching_ : flushing_);
  if (place.pending == 0) {
    finish(place);
    return;
  }
  engine_.submit(batch_);
}

void Mover::fetch(StateCore& state, std::uint32_t tile) {
  take(state, tile);
  TileState& t = state.tiles[tile];
  t.where = Where::kFetching;
  t.fetched = true;
  submit(places_[t.place], true);
}

void Mover::flush(StateCore& state, std::uint32_t tile, bool stay) {
  TileState& t = state.tiles[tile];
  t.where = Where::kFlushing;
  t.dirty = false;
  t.file_main = t.main;
  t.file_moments = t.moments;
  state.settle_in(tile, &state.live());
  places_[t.place].stay = stay;
  submit(places_[t.place], false);
}

bool Mover::reap(bool wait) {
  if (!in_flight()) return false;
  std::array<Transfer*, 64> done{};
  const std::size_t count = engine_.reap(done, wait);
  for (std::size_t i = 0; i < count; ++i) take_up(*done[i]);
  return count != 0;
}

void Mover::settle() {
  while (in_flight()) reap(true);
  recover_lost();
}

void Mover::take_up(Transfer& transfer) {
  Place& place = places_[transfer.tag];
  StateCore& state = *place.state;
  if (transfer.error == 0 && transfer.done != transfer.bytes) transfer.error = EIO;
  if (transfer.error == 0 && state.buffered[state.plan.tiles[place.tile].bucket] != 0) {
    transfer.error = drop_cached(transfer.fd, transfer.offset, transfer.bytes);
  }
  if (transfer.error != 0) {
    place.lost = place.lost || transfer.error == ETIMEDOUT;
    if (!std::exchange(place.failed, true)) fail(place, transfer);
  }
  if (--place.pending == 0) finish(place);
}

void Mover::fail(const Place& place, const Transfer& transfer) {
  const Error error = os_error(place.reading ? "read" : "write", transfer.path, transfer.error)
                          .at(transfer.offset + transfer.done)
                          .want(transfer.bytes, transfer.done)
                          .remedy("Look at the drive and its space, then load a checkpoint.");
  if (!place.reading) {
    place.state->fail(error);
  } else if (!fetch_error_) {
    fetch_error_ = error;
  }
}

void Mover::finish(Place& place) {
  StateCore& state = *place.state;
  TileState& t = state.tiles[place.tile];
  --(place.reading ? fetching_ : flushing_);
  t.where = Where::kResident;
  if (place.reading && !place.failed) {
    t.landed = true;
    landed_.push(place.tile);
  } else if (place.reading || place.failed || !place.stay) {
    release(state, place.tile);
  }
}

void Mover::recover_lost() {
  if (lost_.empty() || !engine_.drain_owned(std::chrono::milliseconds(0))) return;
  std::erase_if(lost_, [&](std::uint32_t index) {
    Place& place = places_[index];
    if (place.pinned_by != nullptr && place.pinned_by->pinned(place.tile)) return false;
    place.pinned_by.reset();
    place.lost = false;
    free_.push_back(index);
    return true;
  });
}

}  // namespace millpond::plugin
