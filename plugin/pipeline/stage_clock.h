// Where the time of a visit goes: busy seconds of each stage, and seconds that the calling thread
// spent on it or waited for it.
#ifndef MILLPOND_PLUGIN_PIPELINE_STAGE_CLOCK_H_
#define MILLPOND_PLUGIN_PIPELINE_STAGE_CLOCK_H_

#include <array>
#include <chrono>
#include <cstdint>

#include "millpond/report.h"

namespace millpond::plugin {

class StageClock {
 public:
  using Clock = std::chrono::steady_clock;

  StageClock() : start_(Clock::now()), last_(start_) {}

  // Whether a stage has work.
  struct Busy {
    bool fetch, update, flush;
  };
  // Shares of fetch, update and flush (they sum to 1, or all are 0).
  struct Spent {
    double fetch, update, flush;
  };
  // Stages were busy since the last mark as that mark said, and are from now on as `busy` says:
  // what changes it is marked, a wait at its beginning too, since a drive may answer everything at
  // once. The caller spent the time since the last mark in these shares.
  void mark(Busy busy, Spent spent) {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    if (since_.fetch) busy_[MILLPOND_STAGE_FETCH] += seconds;
    if (since_.update) busy_[MILLPOND_STAGE_UPDATE] += seconds;
    if (since_.flush) busy_[MILLPOND_STAGE_FLUSH] += seconds;
    since_ = busy;
    spent_[MILLPOND_STAGE_FETCH] += seconds * spent.fetch;
    spent_[MILLPOND_STAGE_UPDATE] += seconds * spent.update;
    spent_[MILLPOND_STAGE_FLUSH] += seconds * spent.flush;
  }

  void add_to(millpond_step_figures* figures) const {
    figures->seconds += std::chrono::duration<double>(last_ - start_).count();
    std::uint32_t longest = MILLPOND_STAGE_UPDATE;
    for (std::uint32_t s = 0; s < MILLPOND_STAGES; ++s) {
      figures->busy_seconds[s] += busy_[s];
      figures->waiting_seconds[s] += spent_[s];
      if (figures->waiting_seconds[s] > figures->waiting_seconds[longest]) longest = s;
    }
    figures->bound_by = longest;
  }

 private:
  Clock::time_point start_;
  Clock::time_point last_;
  Busy since_{};
  std::array<double, MILLPOND_STAGES> busy_{};
  std::array<double, MILLPOND_STAGES> spent_{};
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PIPELINE_STAGE_CLOCK_H_
