// One optimizer step: everything is checked, then scalars, tiles, the visit, the counters. Nothing
// here allocates: the arrays were sized at bind.
#include <algorithm>
#include <chrono>

#include "plugin/store/binding.h"
#include "plugin/store/runtime.h"
#include "plugin/store/store.h"

namespace millpond::plugin {
namespace {

// Tells the host of every tile and lets it cancel: a host whose user gives up need not wait.
class WatchedWork final : public TileWork {
 public:
  WatchedWork(TileWork& work, Host& host, std::uint64_t tiles)
      : work_(work), host_(host), tiles_(tiles) {}
  std::uint32_t capacity() const override { return work_.capacity(); }
  void start(TileView* tile) override {
    host_.progress("step", started_++, tiles_);
    work_.start(tile);
  }
  TileView* finished(bool wait) override { return work_.finished(wait); }

 private:
  TileWork& work_;
  Host& host_;
  std::uint64_t tiles_;
  std::uint64_t started_ = 0;
};

}  // namespace

bool Store::step(const millpond_step_args& args, const std::vector<millpond_group_step>& groups) {
  const auto begin = std::chrono::steady_clock::now();
  check_step(args, groups);
  millpond_step_figures figures{};
  figures.step = held_->completed;
  if (args.found_inf != 0) {
    figures.outcome = MILLPOND_STEP_SKIPPED;
    figures_ = figures;
    verdict_.reset();
    return true;
  }
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    ShardWork& shard = work_.shards[i];
    shard.grad = gradients_[i].pointer;
    shard.grad_element = gradients_[i].element;
    shard.active = gradients_[i].active;
    last_grads_[i] = gradients_[i].pointer;
  }
  choose_scalars(groups, args.grad_scale);
  list_tiles();
  try {
    WatchedWork work(device_->begin_step(work_, args.stream), runtime_.host(), tiles_.size());
    if (!tiles_.empty()) {
      runtime_.pipeline().visit(*held_->streamed, tiles_, Access::kUpdate, work, &figures);
    }
    device_->finish_step(args.stream);
    device_->add_stages(&figures);
  } catch (const std::exception& error) {
    figures.outcome = MILLPOND_STEP_FAILED;
    figures_ = figures;
    poison(std::string("a step failed: ") + error.what());
    throw;
  }
  runtime_.retire_idle(*held_->streamed);
  count_step();
  figures.outcome = MILLPOND_STEP_DONE;
  figures.step = held_->completed;
  figures.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  figures_ = figures;
  verdict_.reset();  // an earlier refusal changed nothing, and this step made up for it
  return false;
}

// Shards of one group share scalars where their counters agree.
void Store::choose_scalars(const std::vector<millpond_group_step>& groups, float grad_scale) {
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    if (group_of_[a] != group_of_[b]) return group_of_[a] < group_of_[b];
    if (held_->steps[a] != held_->steps[b]) return held_->steps[a] < held_->steps[b];
    return a < b;
  };
  if (!std::is_sorted(order_.begin(), order_.end(), before)) {
    std::sort(order_.begin(), order_.end(), before);
  }
  work_.hypers.clear();
  work_.scalars.clear();
  std::uint32_t last_group = UINT32_MAX;
  std::uint64_t last_step = 0;
  for (const std::uint32_t i : order_) {
    if (!work_.shards[i].active) continue;
    const std::uint64_t step = held_->steps[i] + 1;
    if (group_of_[i] != last_group || step != last_step) {
      last_group = group_of_[i];
      last_step = step;
      const millpond_group_step& group = groups[given_group_[last_group]];
      const kernels::Hyper hyper = hyper_of(group, step, grad_scale);
      work_.hypers.push_back(hyper);
      work_.scalars.push_back(kernels::prepare(hyper));
    }
    work_.shards[i].scalars = static_cast<std::uint32_t>(work_.scalars.size() - 1);
  }
}

kernels::Hyper Store::hyper_of(const millpond_group_step& group, std::uint64_t step,
                               float grad_scale) const {
  return {variant_,           group.lr, group.beta1, group.beta2,          group.eps,
          group.weight_decay, step,     grad_scale,  group.decoupled != 0, group.maximize != 0};
}

void Store::list_tiles() {
  const Plan& plan = held_->streamed->plan();
  tiles_.clear();
  for (std::uint32_t t = 0; t < plan.tiles.size(); ++t) {
    const auto pieces = plan.pieces_of(plan.tiles[t]);
    if (std::any_of(pieces.begin(), pieces.end(),
                    [&](const Piece& piece) { return work_.shards[piece.shard].active; })) {
      tiles_.push_back(t);
    }
  }
}

void Store::count_step() {
  for (std::size_t i = 0; i < work_.shards.size(); ++i) {
    const bool counts =
        held_->profile.groups[group_of_[i]].counter_per_group || work_.shards[i].active;
    if (counts) ++held_->steps[i];
  }
  ++held_->completed;
}

}  // namespace millpond::plugin
