#include "plugin/pipeline/visit.h"

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "millpond/base.h"
#include "plugin/pipeline/integrity.h"

namespace millpond::plugin {
namespace {

// Between looks at a device and at the drive, when both have work.
constexpr std::chrono::microseconds kLook{20};

Error as_error(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(MILLPOND_E_INTERNAL, "visit tiles", error.what());
  } catch (...) {
    return Error(MILLPOND_E_INTERNAL, "visit tiles", "an unknown exception");
  }
}

}  // namespace

Visit::Visit(StateCore& state, Access access, TileWork& work, Mover& mover, ThreadPool& pool,
             VisitRoom& room, std::uint32_t depth)
    : state_(state),
      access_(access),
      work_(work),
      mover_(mover),
      pool_(pool),
      room_(room),
      depth_(depth) {}

void Visit::run(std::span<const std::uint32_t> tiles, millpond_step_figures* figures) {
  const std::uint64_t read_before = mover_.bytes_read();
  const std::uint64_t written_before = mover_.bytes_written();
  if (!tiles.empty()) {
    prepare(tiles);
    try {
      loop();
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      come_to_rest();
      drop_after_failure();
      if (access_ != Access::kRead) state_.fail(as_error(failure));
      std::rethrow_exception(failure);
    }
  }
  if (figures == nullptr) return;
  figures->tiles += tiles.size();
  figures->tiles_from_tier += hits_;
  figures->bytes_from_tier += hit_bytes_;
  figures->bytes_read += mover_.bytes_read() - read_before;
  figures->bytes_written += mover_.bytes_written() - written_before;
  clock_.add_to(figures);
}

void Visit::loop() {
  while (remaining_ != 0 || !room_.flushes.empty()) {
    bool moved = mover_.reap(false);
    if (moved) mark({});
    check_failures();
    collect_landed();
    moved |= submit_flushes();
    moved |= submit_fetches();
    moved |= collect_finished(false);
    moved |= start_work();
    if (!moved) wait();
  }
  mover_.reap(false);  // hands what was submitted last to the drive
  check_failures();
  mark({});
}

void Visit::check_failures() const {
  if (mover_.fetch_error()) throw Error(*mover_.fetch_error());
  if (state_.failure) throw Error(*state_.failure);
}

bool Visit::submit_fetches() {
  bool moved = false;
  while (mover_.has_free() && mover_.fetching() < depth_) {
    std::uint32_t tile = 0;
    if (!room_.blocked.empty() && state_.tiles[room_.blocked.front()].where == Where::kFile) {
      tile = room_.blocked.pop();
    } else if (!room_.fetches.empty()) {
      tile = room_.fetches.pop();
    } else {
      break;
    }
    moved = true;
    ++fetched_;
    if (access_ == Access::kOverwrite) {
      mover_.take(state_, tile);
      (state_.tiles[tile].keep ? room_.late : room_.soon).push(tile);
    } else {
      mover_.fetch(state_, tile);
    }
  }
  if (moved) mark({.fetch = 1, .update = 0, .flush = 0});
  return moved;
}

bool Visit::submit_flushes() {
  bool moved = false;
  while (!room_.flushes.empty()) {
    const bool fetches_to_come = !room_.fetches.empty() || !room_.blocked.empty();
    if (fetches_to_come && mover_.flushing() != 0 && flushed_ >= fetched_ + depth_) break;
    const std::uint32_t tile = room_.flushes.pop();
    if (!state_.tiles[tile].summed) {
      make_sums(state_, tile, mover_.place(state_.tiles[tile].place).memory, pool_);
    }
    mover_.flush(state_, tile, false);
    ++flushed_;
    moved = true;
    mark({.fetch = 0, .update = 0, .flush = 1});
  }
  return moved;
}

void Visit::collect_landed() {
  while (!mover_.landed().empty()) {
    const std::uint32_t tile = mover_.landed().pop();
    (state_.tiles[tile].keep ? room_.late : room_.soon).push(tile);
  }
}

// The next tile to work on. What a save still reads from memory waits while others are ready.
std::uint32_t Visit::next_ready() {
  unpinned_ = Mover::unpinned(state_);
  for (auto* queue : {&room_.soon, &room_.late}) {
    for (std::size_t left = queue->size(); left != 0; --left) {
      const std::uint32_t tile = queue->pop();
      if (access_ == Access::kRead || !mover_.pinned(state_, tile)) return tile;
      queue->push(tile);
    }
  }
  return kNone;
}

bool Visit::start_work() {
  if (working_ >= capacity_) return false;
  const std::uint32_t tile = next_ready();
  if (tile == kNone) return false;
  TileState& t = state_.tiles[tile];
  Place& place = mover_.place(t.place);
  if (std::exchange(t.landed, false)) {
    if (state_.verify) verify_sums(state_, tile, place.memory, pool_);
    zero_absent(state_, tile, place.memory, false, pool_);
    mark({.fetch = 1, .update = 0, .flush = 0});
  } else if (access_ == Access::kOverwrite && !place.untouched) {
    zero_absent(state_, tile, place.memory, true, pool_);
  }
  place.untouched = false;
  place.view = TileView{.index = tile,
                        .tile = &state_.plan.tiles[tile],
                        .plan = &state_.plan,
                        .memory = place.memory,
                        .moments_present = access_ != Access::kOverwrite && t.moments,
                        .dirty = false};
  t.where = Where::kWorking;
  ++working_;
  mark({});
  try {
    work_.start(&place.view);
  } catch (...) {
    --working_;
    throw;
  }
  mark({.fetch = 0, .update = 1, .flush = 0});
  return true;
}

// One tile a turn: its sums take a while, and a drive that has answered everything waits for more.
bool Visit::collect_finished(bool wait) {
  TileView* const view = working_ == 0 ? nullptr : work_.finished(wait);
  if (view != nullptr) finish_work(*view);
  return view != nullptr;
}

void Visit::finish_work(TileView& view) {
  const std::uint32_t tile = view.index;
  TileState& t = state_.tiles[tile];
  t.where = Where::kResident;
  --working_;
  --remaining_;
  mark({.fetch = 0, .update = 1, .flush = 0});
  if (access_ == Access::kOverwrite) {
    t.main = true;
    t.moments = view.moments_present;
    t.dirty = true;
  } else if (access_ == Access::kUpdate && (view.dirty || view.moments_present != t.moments)) {
    t.main = true;
    t.moments = t.moments || view.moments_present;
    t.dirty = true;
  }
  t.summed = false;
  if (t.keep) return;
  if (!t.dirty) {
    mover_.release(state_, tile);
    return;
  }
  // Now, while the bytes are still in the processor's cache.
  make_sums(state_, tile, view.memory, pool_);
  t.summed = true;
  room_.flushes.push(tile);
  mark({.fetch = 0, .update = 0, .flush = 1});
}

void Visit::wait() {
  mark({});
  const double fetching = mover_.fetching();
  const double flushing = mover_.flushing();
  if (working_ != 0 && mover_.in_flight()) {
    std::this_thread::sleep_for(kLook);
    const double all = fetching + flushing + working_;
    mark({.fetch = fetching / all, .update = working_ / all, .flush = flushing / all});
  } else if (working_ != 0) {
    if (!collect_finished(true)) {
      throw Error(MILLPOND_E_INTERNAL, "visit tiles", "a started tile was never finished");
    }
    mark({.fetch = 0, .update = 1, .flush = 0});
  } else if (mover_.in_flight()) {
    mover_.reap(true);
    const double all = fetching + flushing;
    mark({.fetch = fetching / all, .update = 0, .flush = flushing / all});
  } else if (!room_.soon.empty() || !room_.late.empty()) {
    // Whichever comes first: the save writes in its own order.
    mover_.wait_any_unpinned(state_, unpinned_,
                             room_.soon.empty() ? room_.late.front() : room_.soon.front());
    mark({.fetch = 0, .update = 0, .flush = 1});
  } else {
    throw Error(mover_.lost() != 0 ? MILLPOND_E_TIMEOUT : MILLPOND_E_INTERNAL, "visit tiles",
                "no place of the host tier is free: the kernel holds what is missing since a "
                "transfer timed out")
        .want(1, mover_.lost())
        .remedy("Look at the drive; a new process is needed if it does not answer any more.");
  }
}

void Visit::come_to_rest() noexcept {
  try {
    while (working_ != 0) {
      TileView* const view = work_.finished(true);
      if (view == nullptr) break;
      state_.tiles[view->index].where = Where::kResident;
      --working_;
    }
  } catch (...) {
    // A device that fails here has nothing running any more.
  }
  try {
    mover_.settle();
  } catch (...) {
    // Only an error's text can fail to be made; the transfers were taken up.
  }
  mover_.landed().clear();
  mover_.fetch_error().reset();
}

void Visit::drop_after_failure() noexcept {
  for (std::uint32_t tile = 0; tile < state_.tiles.size(); ++tile) {
    TileState& t = state_.tiles[tile];
    if (t.place == kNoPlace) continue;
    t.where = Where::kResident;
    // Reading changed nothing: what was held before is as good as it was.
    if (access_ != Access::kRead || t.fetched) mover_.release(state_, tile);
  }
}

void Visit::mark(StageClock::Spent spent) {
  clock_.mark(
      {.fetch = mover_.fetching() != 0, .update = working_ != 0, .flush = mover_.flushing() != 0},
      spent);
}

}  // namespace millpond::plugin
