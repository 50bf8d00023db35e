#include "plugin/pipeline/state.h"

#include <fcntl.h>

#include <utility>

#include "checkpoint/block_sum.h"

namespace millpond::plugin {

StateCore::StateCore(Plan plan_, std::string uid_, std::vector<Fd> files_,
                     std::vector<std::string> paths_, bool verify_)
    : plan(std::move(plan_)),
      uid(std::move(uid_)),
      seed(checkpoint::uid_seed(uid)),
      verify(verify_),
      tiles(plan.tiles.size()),
      sums(plan.buckets.size()) {
  if (files_.size() != plan.buckets.size() || paths_.size() != plan.buckets.size()) {
    throw Error(MILLPOND_E_INTERNAL, "make a streamed state", "one file a bucket is needed")
        .want(plan.buckets.size(), files_.size());
  }
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    for (std::uint32_t s = bucket.first_segment; s < kSegments; ++s) {
      sums[b][s].resize(bucket.blocks);
    }
    const int flags = fcntl(files_[b].get(), F_GETFL);
    buffered.push_back(flags >= 0 && (flags & O_DIRECT) == 0 ? 1 : 0);
  }
  generations.push_back(std::make_shared<Generation>());
  live().files = std::move(files_);
  live().paths = std::move(paths_);
  live().tiles = tiles.size();
  for (TileState& tile : tiles) tile.home = &live();
}

StreamedState::StreamedState(Plan plan, std::string uid, std::vector<Fd> files,
                             std::vector<std::string> paths, bool verify)
    : impl_(std::make_unique<Impl>(std::move(plan), std::move(uid), std::move(files),
                                   std::move(paths), verify)) {}

StreamedState::~StreamedState() {
  if (impl_->owner != nullptr) impl_->owner->detach(*impl_);
}

const Plan& StreamedState::plan() const { return impl_->plan; }
const std::string& StreamedState::uid() const { return impl_->uid; }
bool StreamedState::moments_present(std::uint32_t tile) const { return impl_->tiles[tile].moments; }
std::span<const std::uint64_t> StreamedState::sums(std::uint32_t bucket,
                                                   std::uint32_t segment) const {
  return impl_->sums[bucket][segment];
}
int StreamedState::fd(std::uint32_t bucket) const { return impl_->live().files[bucket].get(); }
int StreamedState::fd_of(std::uint32_t tile) const {
  return impl_->tiles[tile].home->files[impl_->plan.tiles[tile].bucket].get();
}
std::vector<StreamedState::OpenFile> StreamedState::files() const {
  std::vector<OpenFile> all;
  for (const auto& generation : impl_->generations) {
    for (const Fd& file : generation->files) all.push_back({file.get(), sole(generation)});
  }
  return all;
}
const std::optional<Error>& StreamedState::failure() const { return impl_->failure; }
std::uint64_t StreamedState::tier_tiles() const { return impl_->kept; }

}  // namespace millpond::plugin
