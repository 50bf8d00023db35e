// The scratch files of streamed states: where they go, how they come and how they leave.
#include <sys/stat.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "plugin/io/reopen.h"
#include "plugin/pipeline/snapshot.h"
#include "plugin/store/runtime.h"
#include "plugin/store/store.h"

namespace millpond::plugin {

namespace {

// Buckets by falling size, each into the directory that has the fewest bytes so far: the load of
// the drives differs by at most one bucket.
std::vector<std::uint32_t> balance(const Plan& plan, std::vector<std::uint64_t> reserved) {
  std::vector<std::uint32_t> order(plan.buckets.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return plan.buckets[a].file_bytes > plan.buckets[b].file_bytes;
  });
  std::vector<std::uint32_t> root(plan.buckets.size());
  for (const std::uint32_t bucket : order) {
    const auto least = std::min_element(reserved.begin(), reserved.end());
    root[bucket] = static_cast<std::uint32_t>(least - reserved.begin());
    *least += plan.buckets[bucket].file_bytes;
  }
  return root;
}

// Files of an older generation, open for writing; none where one of them has not its size, since it
// was cut for a checkpoint, or cannot be opened.
ScratchFiles serve_again(const Generation& spare, const Plan& plan) {
  ScratchFiles again;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    struct stat info = {};
    Fd file = reopen_read_write(spare.files[b].get());
    if (!file || ::fstat(file.get(), &info) != 0 ||
        static_cast<std::uint64_t>(info.st_size) != plan.buckets[b].file_bytes) {
      return {};
    }
    again.files.push_back(std::move(file));
    again.paths.push_back(spare.paths[b]);
  }
  return again;
}

}  // namespace

ScratchFiles Runtime::reserve_files(const Plan& plan, const std::string& uid,
                                    const std::vector<std::uint32_t>& root) {
  std::vector<std::uint64_t> needed(roots_.size());
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    needed[root[b]] += plan.buckets[b].file_bytes;
  }
  // What is spare, and what is on its way out, counts as free.
  const auto short_of_space = [&] {
    for (std::size_t r = 0; r < roots_.size(); ++r) {
      if (roots_[r]->free_bytes() < needed[r]) return true;
    }
    return false;
  };
  if (short_of_space()) {
    close_spares();
    reaper_->wait();
  }
  for (std::size_t r = 0; r < roots_.size(); ++r) {
    const std::uint64_t free = roots_[r]->free_bytes();
    if (free >= needed[r]) continue;
    throw Error(MILLPOND_E_NO_SPACE, "reserve scratch space",
                "the filesystem has fewer bytes free than the store's files need")
        .path(roots_[r]->path())
        .field("options.scratch")
        .want(needed[r], free)
        .remedy("Free space, or name further directories in \"scratch\"");
  }
  const FileReaper::Pause undisturbed(*reaper_);
  ScratchFiles made;
  for (std::uint32_t b = 0; b < plan.buckets.size(); ++b) {
    const std::string name = uid + ".bucket" + std::to_string(b);
    made.files.push_back(roots_[root[b]]->create(plan.buckets[b].file_bytes, name));
    made.paths.push_back(roots_[root[b]]->path() + "/" + name);
  }
  return made;
}

std::unique_ptr<StreamedState> Runtime::make_state(const Plan& plan, const std::string& uid) {
  Placement placement;
  placement.root = balance(plan, reserved_);
  ScratchFiles made = reserve_files(plan, uid, placement.root);
  placements_.reserve(placements_.size() + 1);
  auto state = std::make_unique<StreamedState>(plan, uid, std::move(made.files),
                                               std::move(made.paths), options_.verify_reads);
  placement.state = state.get();
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    reserved_[placement.root[b]] += plan.buckets[b].file_bytes;
  }
  placements_.push_back(std::move(placement));
  return state;
}

ScratchFiles Runtime::next_files(StreamedState& state) {
  if (const std::shared_ptr<Generation> spare = pipeline().take_spare(state)) {
    ScratchFiles again = serve_again(*spare, state.plan());
    if (!again.files.empty()) return again;
    close_files(*spare);
  }
  const auto place = std::find_if(placements_.begin(), placements_.end(),
                                  [&](const Placement& p) { return p.state == &state; });
  if (place == placements_.end()) {
    throw Error(MILLPOND_E_INTERNAL, "reserve scratch space", "the state has no directories");
  }
  return reserve_files(state.plan(), state.uid(), place->root);
}

void Runtime::retire_idle(StreamedState& state) noexcept {
  while (const std::shared_ptr<Generation> idle = pipeline().take_idle(state)) {
    close_files(*idle);
  }
}

void Runtime::close_files(Generation& idle) noexcept {
  const Others others = idle.ours ? Others::kNobody : Others::kPerhaps;
  for (Fd& file : idle.files) reaper_->close(std::move(file), others);
}

void Runtime::close_spares() noexcept {
  if (pipeline_ == nullptr) return;
  for (const auto& store : stores_) {
    if (store->streamed() == nullptr) continue;
    while (const std::shared_ptr<Generation> spare = pipeline_->take_spare(*store->streamed())) {
      close_files(*spare);
    }
  }
}

void Runtime::retire_state(std::unique_ptr<StreamedState> state) {
  if (state == nullptr) return;
  const auto place = std::find_if(placements_.begin(), placements_.end(),
                                  [&](const Placement& p) { return p.state == state.get(); });
  if (place != placements_.end()) {
    const Plan& plan = state->plan();
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      reserved_[place->root[b]] -= plan.buckets[b].file_bytes;
    }
    placements_.erase(place);
  }
  // Descriptors first: the state's own are closed with it, the files go with the last ones.
  std::vector<std::pair<Fd, Others>> files;
  for (const auto& [fd, sole] : state->files()) {
    files.emplace_back(FileReaper::second(fd), sole ? Others::kNobody : Others::kPerhaps);
  }
  pipeline().discard(*state);
  // Of a transfer that timed out the kernel may still be at the file.
  const bool hangs = engine_->owned_bytes() != 0;
  state.reset();
  for (auto& [file, others] : files) {
    reaper_->close(std::move(file), hangs ? Others::kPerhaps : others);
  }
}

void Runtime::plan_tier(StreamedState* extra, const StreamedState* without) {
  std::vector<StreamedState*> states;
  for (const auto& store : stores_) {
    StreamedState* state = store->streamed();
    if (state != nullptr && state != without) states.push_back(state);
  }
  if (extra != nullptr) states.push_back(extra);
  const std::uint64_t before = pipeline().host_bytes();
  pipeline().plan_tier(states);
  const std::uint64_t after = pipeline().host_bytes();
  if (after == before || after == 0) return;  // the last store has gone: nothing to tell
  if (std::string note = engine_->note(); note != engine_note_) {
    // A trial of less memory was registered, or refused, when the engine was chosen.
    engine_note_ = std::move(note);
    engine_reason_ = std::string("I/O engine ") + engine_->name() + ": " +
                     (engine_note_.empty() ? "registered memory and files" : engine_note_);
    host_.log(MILLPOND_LOG_INFO, engine_reason_);
  }
  host_.log(MILLPOND_LOG_INFO, memory_choice_ + "; took " + std::to_string(after) +
                                   " bytes: " + std::to_string(pipeline().places()) +
                                   (pipeline().places() == 1 ? " tile of " : " tiles of ") +
                                   std::to_string(pipeline().place_bytes()) + " bytes, " +
                                   std::to_string(pipeline().ring_places()) + " of them the ring");
}

std::vector<std::uint64_t> Runtime::bytes_by_root(const StreamedState& state) const {
  std::vector<std::uint64_t> bytes(roots_.size());
  for (const Placement& placement : placements_) {
    if (placement.state != &state) continue;
    const Plan& plan = state.plan();
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      bytes[placement.root[b]] += plan.buckets[b].file_bytes;
    }
  }
  return bytes;
}

}  // namespace millpond::plugin
