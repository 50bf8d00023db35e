// Pipeline's part of a save: a state's files are frozen as they are, and it goes on in new ones.
#include <utility>

#include "millpond/base.h"
#include "plugin/io/reopen.h"
#include "plugin/pipeline/impl.h"

namespace millpond::plugin {

std::shared_ptr<Snapshot> Pipeline::freeze(StreamedState& state, std::vector<Fd> files,
                                           std::vector<std::string> paths) {
  StateCore& core = *state.impl_;
  impl_->mover.settle();
  if (core.failure) throw Error(*core.failure);
  // A late write of a transfer that timed out would change what is saved.
  impl_->require_nothing_owned("save");
  if (files.size() != core.plan.buckets.size() || paths.size() != files.size()) {
    throw Error(MILLPOND_E_INTERNAL, "save", "one new file a bucket is needed")
        .want(core.plan.buckets.size(), files.size());
  }
  // All that can fail first.
  auto snapshot = std::make_shared<Snapshot>(core.plan, core.uid, core.seed);
  snapshot->sums_ = core.sums;
  auto fresh = std::make_shared<Generation>();
  fresh->files = std::move(files);
  fresh->paths = std::move(paths);
  const std::shared_ptr<Generation> frozen = core.generations.back();
  std::vector<Fd> readable;
  for (std::size_t b = 0; b < frozen->files.size(); ++b) {
    readable.push_back(reopen_read_only(frozen->files[b].get(), frozen->paths[b]));
  }
  core.generations.reserve(core.generations.size() + 1);
  for (const auto& generation : core.generations) {
    if (generation != frozen) snapshot->older_.push_back(generation);
  }

  for (const Fd& file : frozen->files) impl_->engine.forget(file.get());
  snapshot->files_ = std::exchange(frozen->files, std::move(readable));
  snapshot->frozen_ = frozen;
  frozen->ours = false;  // the job may link them
  core.generations.push_back(fresh);
  for (std::uint32_t tile = 0; tile < core.tiles.size(); ++tile) {
    TileState& t = core.tiles[tile];
    Snapshot::Tile& kept = snapshot->tiles_[tile];
    kept.main = t.main;
    kept.moments = t.moments;
    if (t.dirty) {
      // The job writes it into the frozen file. It stays dirty: nothing is lost where the job
      // fails.
      kept.memory = impl_->mover.place(t.place).memory;
      snapshot->pins_[tile].store(1, std::memory_order_release);
      t.pinned = true;
      core.settle_in(tile, frozen.get());
    } else if (!t.file_main && !t.file_moments) {
      core.settle_in(tile, fresh.get());
    } else if (t.home != frozen.get()) {
      kept.older = t.home;
    }
  }
  core.snapshot = snapshot;
  return snapshot;
}

bool Pipeline::Impl::idle(const StateCore& core, std::size_t generation) const noexcept {
  return generation + 1 < core.generations.size() && mover.fetching() == 0 &&
         core.generations[generation]->tiles == 0 && core.generations[generation].use_count() == 1;
}

std::size_t Pipeline::Impl::spare(StateCore& core) const noexcept {
  if (core.generations.size() < 2) return kNoGeneration;
  // What is dirty in memory is read from no file: the tile is written to the newest in any case.
  for (std::uint32_t tile = 0; tile < core.tiles.size(); ++tile) {
    if (core.tiles[tile].dirty) core.settle_in(tile, &core.live());
  }
  for (std::size_t i = core.generations.size(); i-- > 0;) {
    if (idle(core, i) && core.generations[i]->ours) return i;
  }
  return kNoGeneration;
}

void Pipeline::thaw(StreamedState& state, const Snapshot& snapshot, bool complete) {
  StateCore& core = *state.impl_;
  if (core.snapshot.get() != &snapshot) return;
  for (std::uint32_t tile = 0; tile < core.tiles.size(); ++tile) {
    TileState& t = core.tiles[tile];
    const Generation* const older = snapshot.tiles_[tile].older;
    if (complete && older != nullptr && t.home == older) {
      core.settle_in(tile, snapshot.frozen_.get());
    }
    t.pinned = false;
  }
  snapshot.frozen_->ours = !snapshot.shared_;
  core.snapshot.reset();
}

std::shared_ptr<Generation> Pipeline::Impl::take(StateCore& core, std::size_t generation) noexcept {
  std::shared_ptr<Generation> taken = std::move(core.generations[generation]);
  core.generations.erase(core.generations.begin() + static_cast<std::ptrdiff_t>(generation));
  let_go(*taken);
  return taken;
}

std::shared_ptr<Generation> Pipeline::take_spare(StreamedState& state) noexcept {
  StateCore& core = *state.impl_;
  const std::size_t spare = impl_->spare(core);
  if (spare == kNoGeneration || impl_->engine.owned_bytes() != 0) return nullptr;
  return impl_->take(core, spare);
}

std::shared_ptr<Generation> Pipeline::take_idle(StreamedState& state) noexcept {
  StateCore& core = *state.impl_;
  const std::size_t spare = impl_->spare(core);
  for (std::size_t i = 0; i + 1 < core.generations.size(); ++i) {
    if (i != spare && impl_->idle(core, i)) return impl_->take(core, i);
  }
  return nullptr;
}

}  // namespace millpond::plugin
