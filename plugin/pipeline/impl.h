// The inside of a Pipeline.
#ifndef MILLPOND_PLUGIN_PIPELINE_IMPL_H_
#define MILLPOND_PLUGIN_PIPELINE_IMPL_H_

#include <cstdint>
#include <vector>

#include "plugin/pipeline/mover.h"
#include "plugin/pipeline/pipeline.h"
#include "plugin/pipeline/region.h"
#include "plugin/pipeline/state.h"
#include "plugin/pipeline/tier_plan.h"
#include "plugin/pipeline/visit.h"

namespace millpond::plugin {

struct Pipeline::Impl final : TierOwner {
  Impl(const PipelineOptions& o, Engine& e, ThreadPool& p)
      : options(o), engine(e), pool(p), mover(e, o.patience) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void detach(StateCore& state) noexcept override;
  void let_go(Generation& generation) noexcept;  // its files are about to be closed
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
