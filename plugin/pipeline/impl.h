// The inside of a Pipeline.
#ifndef MILLPOND_PLUGIN_PIPELINE_IMPL_H_
#define MILLPOND_PLUGIN_PIPELINE_IMPL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugin/pipeline/mover.h"
#include "plugin/pipeline/pipeline.h"
#include "plugin/pipeline/region.h"
#include "plugin/pipeline/state.h"
#include "plugin/pipeline/tier_plan.h"
#include "plugin/pipeline/visit.h"

namespace millpond::plugin {

inline constexpr std::size_t kNoGeneration = SIZE_MAX;

struct Pipeline::Impl final : TierOwner {
  Impl(const PipelineOptions& o, Engine& e, ThreadPool& p)
      : options(o), engine(e), pool(p), mover(e, o.patience) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void detach(StateCore& state) noexcept override;
  void let_go(Generation& generation) noexcept;  // its files are about to be closed
  // Of a state's generations: whether nothing is read from this one any more, by visits or by a
  // save; and which of them is the spare (pipeline.h), kNoGeneration where there is none.
  bool idle(const StateCore& core, std::size_t generation) const noexcept;
  std::size_t spare(StateCore& core) const noexcept;
  std::shared_ptr<Generation> take(StateCore& core, std::size_t generation) noexcept;
  void require(const StateCore& state);
  void write_dirty(StateCore& state);
  void flush_all();
  void drop(StateCore& state);
  void require_nothing_owned(const char* operation);
  void wait_for_saves();
  void map();
  void unmap();

  PipelineOptions options;
  Engine& engine;
  ThreadPool& pool;
  Region region;
  RegionPin* pin = nullptr;
  Mover mover;
  TierPlan tier;
  std::uint32_t transfers = 0;  // that a tile needs at most
  std::vector<StateCore*> states;
  VisitRoom room;
  bool suspended = false;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PIPELINE_IMPL_H_
