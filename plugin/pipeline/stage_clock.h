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

  // Time since the last mark was spent with these stages busy, and by the caller on `fetch`,
  // `update` and `flush` in these shares (they sum to 1, or all are 0).
  struct Busy {
    bool fetch, update, flush;
  };
  struct Spent {
    double fetch, update, flush;
  };
  void mark(Busy busy, Spent spent) {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    if (busy.fetch) busy_[MILLPOND_STAGE_FETCH] += seconds;
    if (busy.update) busy_[MILLPOND_STAGE_UPDATE] += seconds;
    if (busy.flush) busy_[MILLPOND_STAGE_FLUSH] += seconds;
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
  std::array<double, MILLPOND_STAGES> busy_{};
  std::array<double, MILLPOND_STAGES> spent_{};
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PIPELINE_STAGE_CLOCK_H_
