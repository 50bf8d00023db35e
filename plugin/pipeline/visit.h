// One visit: which tiles stay, in what order the others move, and the loop that keeps every stage
// busy at once.
//
// K tiles stay at the end. An update visit keeps the last K of its order and runs towards them from
// the tiles that the visit before kept, so that what is held is used at once and its places become
// the ring of the visit: each tile that does not stay is flushed when it was updated, and its place
// takes the next fetch. T-K tiles are read and T-K written, in step with each other from beginning
// to end. A read visit keeps what is held and streams the rest past it.
#ifndef MILLPOND_PLUGIN_PIPELINE_VISIT_H_
#define MILLPOND_PLUGIN_PIPELINE_VISIT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "plugin/core/thread_pool.h"
#include "plugin/pipeline/fixed_queue.h"
#include "plugin/pipeline/mover.h"
#include "plugin/pipeline/stage_clock.h"
#include "plugin/pipeline/state.h"

namespace millpond::plugin {

// Room for the visits of any store of the runtime, set aside when the tier is planned.
struct VisitRoom {
  FixedQueue<std::uint32_t> fetches;  // tiles to fetch, in order
  FixedQueue<std::uint32_t> blocked;  // to fetch when an older flush of theirs is through
  FixedQueue<std::uint32_t> soon;     // ready for work, will leave: first, since they make room
  FixedQueue<std::uint32_t> late;     // ready for work, will stay
  FixedQueue<std::uint32_t> flushes;  // to be written
  void reserve(std::size_t tiles) {
    for (auto* queue : {&fetches, &blocked, &soon, &late, &flushes}) queue->reserve(tiles);
  }
};

class Visit {
 public:
  // `depth`: tiles that are fetched at once, and by which flushes may run ahead of fetches.
  Visit(StateCore& state, Access access, TileWork& work, Mover& mover, ThreadPool& pool,
        VisitRoom& room, std::uint32_t depth);

  // Throws after everything started has come to rest.
  void run(std::span<const std::uint32_t> tiles, millpond_step_figures* figures);

 private:
  void prepare(std::span<const std::uint32_t> tiles);
  bool ascending(std::span<const std::uint32_t> tiles) const;
  void choose_kept(bool ascending);
  void line_up(std::uint32_t tile);
  void loop();
  void check_failures() const;
  bool submit_fetches();
  bool submit_flushes();
  void collect_landed();
  static constexpr std::uint32_t kNone = UINT32_MAX;
  std::uint32_t next_ready();
  bool start_work();
  void finish_work(TileView& view);
  bool collect_finished(bool wait);
  void wait();
  void come_to_rest() noexcept;
  void drop_after_failure() noexcept;
  void mark(StageClock::Spent spent);

  StateCore& state_;
  Access access_;
  TileWork& work_;
  Mover& mover_;
  ThreadPool& pool_;
  VisitRoom& room_;
  std::uint32_t depth_;
  std::uint32_t capacity_ = 1;
  StageClock clock_;
  std::uint32_t working_ = 0;    // started and not finished
  std::uint32_t remaining_ = 0;  // to be finished
  std::uint64_t unpinned_ = 0;   // tiles that a save had let go when next_ready looked last
  std::uint64_t fetched_ = 0;    // tiles submitted by this visit
  std::uint64_t flushed_ = 0;
  std::uint64_t hits_ = 0;
  std::uint64_t hit_bytes_ = 0;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PIPELINE_VISIT_H_
