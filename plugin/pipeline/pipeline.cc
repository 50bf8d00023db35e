#include "plugin/pipeline/pipeline.h"

#include <algorithm>
#include <chrono>

#include "millpond/base.h"
#include "plugin/pipeline/impl.h"
#include "plugin/pipeline/integrity.h"

namespace millpond::plugin {
Pipeline::Impl::~Impl() {
  try {
    mover.settle();
    if ((engine.owned_bytes() != 0 && !engine.drain_owned(std::chrono::milliseconds(0))) ||
        mover.holds_pinned()) {
      region.leak();
    } else if (region.bytes() != 0) {
      unmap();
    }
  } catch (...) {
    region.leak();  // memory that the kernel may still hold must never be used for anything else
  }
  for (StateCore* state : states) {
    for (const auto& generation : state->generations) {
      for (const Fd& file : generation->files) engine.forget(file.get());
    }
    state->owner = nullptr;
  }
}

void Pipeline::Impl::let_go(Generation& generation) noexcept {
  for (Fd& file : generation.files) {
    engine.forget(file.get());
    // A transfer that timed out may still be under way: its descriptor's number must not come to
    // name another file. It stays open with the memory that the kernel owns.
    if (engine.owned_bytes() != 0) static_cast<void>(file.release());
  }
}

// Its files are about to be closed and its tiles are nobody's.
void Pipeline::Impl::detach(StateCore& state) noexcept {
  try {
    mover.settle();
  } catch (...) {
    // The text of an error could not be made; the transfers were taken up.
  }
  drop(state);
  for (const auto& generation : state.generations) let_go(*generation);
  std::erase(states, &state);
  state.owner = nullptr;
  state.kept = 0;
}

void Pipeline::Impl::require(const StateCore& state) {
  if (state.owner != this) {
    throw Error(MILLPOND_E_INTERNAL, "visit tiles", "the state has no share of the host tier");
  }
  if (!state.tiles.empty() && region.bytes() == 0) {
    throw Error(MILLPOND_E_STATE, "visit tiles", "the host tier is suspended")
        .remedy("Call resume first.");
  }
  if (!state.failure) return;
  mover.settle();
  throw Error(*state.failure);
}

// All dirty tiles are written and stay. Errors are kept in the state.
void Pipeline::Impl::write_dirty(StateCore& state) {
  for (std::uint32_t tile = 0; tile < state.tiles.size() && !state.failure; ++tile) {
    const TileState& t = state.tiles[tile];
    if (t.where != Where::kResident || !t.dirty) continue;
    make_sums(state, tile, mover.place(t.place).memory, pool);
    mover.flush(state, tile, true);
    mover.reap(false);
  }
}

void Pipeline::Impl::flush_all() {
  for (StateCore* state : states) write_dirty(*state);
  mover.settle();
}

void Pipeline::Impl::drop(StateCore& state) {
  for (std::uint32_t tile = 0; tile < state.tiles.size(); ++tile) {
    if (state.tiles[tile].where == Where::kResident) mover.release(state, tile);
  }
}

void Pipeline::Impl::require_nothing_owned(const char* operation) {
  if (engine.owned_bytes() == 0 || engine.drain_owned(std::chrono::milliseconds(0))) return;
  throw Error(MILLPOND_E_TIMEOUT, operation,
              "the kernel still holds memory of transfers that timed out")
      .want(0, engine.owned_bytes())
      .remedy("Look at the drive; a new process is needed if it does not answer any more.");
}

// No save reads memory of the tier any more.
void Pipeline::Impl::wait_for_saves() {
  for (StateCore* state : states) {
    for (std::uint32_t tile = 0; tile < state->tiles.size(); ++tile) {
      mover.wait_unpinned(*state, tile);
    }
  }
}

// The region for the present plan, all places free.
void Pipeline::Impl::map() {
  const std::uint64_t bytes = tier.places * tier.place_bytes;
  const bool fresh = region.bytes() != bytes;
  if (fresh) {
    unmap();
    region.map(bytes, pool, pin);
    if (bytes != 0) engine.use_memory(region.data(), bytes);
    if (bytes != 0 && pin != nullptr) pin->attach(region.data(), bytes);
  }
  mover.configure(region.data(), tier.place_bytes, tier.places, transfers, fresh);
}

void Pipeline::Impl::unmap() {
  mover.configure(nullptr, 0, 0, 0, false);
  if (region.bytes() == 0) return;
  engine.use_memory(nullptr, 0);
  if (pin != nullptr) pin->detach();
  region.unmap();
}

Pipeline::Pipeline(const PipelineOptions& options, Engine& engine, ThreadPool& pool)
    : impl_(std::make_unique<Impl>(options, engine, pool)) {}

Pipeline::~Pipeline() = default;

void Pipeline::plan_tier(std::span<StreamedState* const> stores) {
  std::vector<std::uint64_t> tiles;
  std::uint64_t place_bytes = 0;
  std::uint32_t transfers = 0;
  std::size_t most_tiles = 0;
  for (const StreamedState* store : stores) {
    const Plan& plan = store->plan();
    tiles.push_back(plan.tiles.size());
    most_tiles = std::max(most_tiles, plan.tiles.size());
    place_bytes = std::max(place_bytes, plan.max_tile_bytes);
    transfers = std::max(transfers, Mover::transfers_of(plan));
  }
  TierPlan tier =
      divide_tier(tiles, place_bytes, impl_->options.host_memory_bytes, impl_->options.ring_bytes);

  impl_->flush_all();
  impl_->require_nothing_owned("plan the host tier");
  impl_->wait_for_saves();
  while (!impl_->states.empty()) impl_->detach(*impl_->states.back());
  impl_->tier = std::move(tier);
  impl_->transfers = transfers;
  impl_->room.reserve(most_tiles);
  impl_->states.reserve(stores.size());
  for (std::size_t i = 0; i < stores.size(); ++i) {
    StateCore& state = *stores[i]->impl_;
    state.owner = impl_.get();
    state.kept = impl_->tier.kept[i];
    impl_->states.push_back(&state);
  }
  if (!impl_->suspended) impl_->map();
}

void Pipeline::visit(StreamedState& state, std::span<const std::uint32_t> tiles, Access access,
                     TileWork& work, millpond_step_figures* figures) {
  StateCore& core = *state.impl_;
  impl_->mover.reap(false);
  impl_->mover.recover_lost();
  impl_->require(core);
  // Where tiles are made anew, mostly mains move.
  std::uint64_t moved = impl_->tier.place_bytes;
  if (access == Access::kOverwrite && !core.plan.tiles.empty()) {
    const std::uint64_t main = core.plan.tiles.front().bytes[MILLPOND_SEGMENT_MAIN];
    if (main != 0) moved = std::min(moved, main);
  }
  const std::uint64_t depth = moved == 0 ? 0 : impl_->options.depth_bytes / moved;
  Visit(core, access, work, impl_->mover, impl_->pool, impl_->room,
        static_cast<std::uint32_t>(std::max<std::uint64_t>(depth, 2)))
      .run(tiles, figures);
}

void Pipeline::flush(StreamedState& state) {
  StateCore& core = *state.impl_;
  impl_->require(core);
  impl_->write_dirty(core);
  impl_->mover.settle();
  if (core.failure) throw Error(*core.failure);
}

void Pipeline::settle() { impl_->mover.settle(); }

void Pipeline::discard(StreamedState& state) {
  impl_->mover.settle();
  impl_->drop(*state.impl_);
}

void Pipeline::suspend() {
  if (impl_->suspended) return;
  std::vector<bool> failed_before;
  for (const StateCore* state : impl_->states) failed_before.push_back(state->failure.has_value());
  impl_->flush_all();
  for (std::size_t i = 0; i < failed_before.size(); ++i) {
    const StateCore& state = *impl_->states[i];
    if (state.failure && !failed_before[i]) throw Error(*state.failure);
  }
  impl_->require_nothing_owned("suspend the host tier");
  impl_->wait_for_saves();
  for (StateCore* state : impl_->states) impl_->drop(*state);
  impl_->unmap();
  impl_->suspended = true;
}

void Pipeline::resume() {
  if (!impl_->suspended) return;
  impl_->map();
  impl_->suspended = false;
}

void Pipeline::use_pin(RegionPin* pin) {
  impl_->pin = pin;
  if (impl_->region.bytes() != 0) pin->attach(impl_->region.data(), impl_->region.bytes());
}

std::uint64_t Pipeline::host_bytes() const { return impl_->region.bytes(); }
std::uint32_t Pipeline::places() const { return impl_->tier.places; }
std::uint32_t Pipeline::ring_places() const { return impl_->tier.ring; }
std::uint64_t Pipeline::place_bytes() const { return impl_->tier.place_bytes; }

}  // namespace millpond::plugin
