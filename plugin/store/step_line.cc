#include "plugin/store/step_line.h"

#include <fmt/format.h>

#include <algorithm>

namespace millpond::plugin {
namespace {

constexpr const char* kStages[MILLPOND_STAGES] = {"fetch", "upload", "update", "download", "flush"};

// Writes behind what is there.
class Line {
 public:
  explicit Line(std::span<char> room) : room_(room) {}
  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    const std::size_t left = room_.size() - size_;
    const auto written =
        fmt::format_to_n(room_.data() + size_, left, format, std::forward<Values>(values)...);
    size_ += std::min(written.size, left);
  }
  std::string_view text() const { return {room_.data(), size_}; }

 private:
  std::span<char> room_;
  std::size_t size_ = 0;
};

double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

std::string_view step_line(const millpond_step_figures& figures, std::string_view uid,
                           std::span<char> room) {
  Line line(room);
  if (figures.outcome == MILLPOND_STEP_SKIPPED) {
    line.add("step after {} of {}: skipped, found_inf is set", figures.step, uid);
    return line.text();
  }
  line.add(
      "step {} of {}: {:.3f} s, bound by {}; read {:.1f} MB, written {:.1f} MB, from the tier ",
      figures.step, uid, figures.seconds, kStages[std::min(figures.bound_by, MILLPOND_STAGES - 1)],
      megabytes(figures.bytes_read), megabytes(figures.bytes_written));
  line.add("{:.1f} MB ({} of {} tiles); busy and waited for, s:",
           megabytes(figures.bytes_from_tier), figures.tiles_from_tier, figures.tiles);
  for (std::uint32_t s = 0; s < MILLPOND_STAGES; ++s) {
    if (figures.busy_seconds[s] == 0 && figures.waiting_seconds[s] == 0) continue;
    line.add(" {} {:.3f} {:.3f}", kStages[s], figures.busy_seconds[s], figures.waiting_seconds[s]);
  }
  return line.text();
}

}  // namespace millpond::plugin
