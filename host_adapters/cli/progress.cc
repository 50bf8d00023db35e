#include "host_adapters/cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "host_adapters/command_line/quantity.h"

namespace millpond::cli {
namespace {

constexpr std::size_t kBar = 24;  // characters
constexpr auto kEvery = std::chrono::milliseconds(100);

}  // namespace

Progress::Progress(bool quiet, std::uint32_t rank, std::uint32_t ranks)
    : quiet_(quiet),
      bar_(!quiet && rank == 0 && isatty(STDERR_FILENO) == 1),
      prefix_(ranks > 1 ? "rank " + std::to_string(rank) + ": " : ""),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

void Progress::begin(std::string what, std::uint64_t total) {
  what_ = std::move(what);
  total_ = total;
  done_ = 0;
  start_ = std::chrono::steady_clock::now();
  last_ = start_ - kEvery;
  show(0, "");
}

void Progress::at(std::uint64_t done, double fraction) {
  done_ = done;
  show(fraction, "");
}

void Progress::part(std::string_view what, std::uint64_t done, std::uint64_t total) {
  const double fraction =
      total == 0 ? 0 : static_cast<double>(done) / static_cast<double>(std::max(total, done));
  show(fraction, what);
}

void Progress::show(double fraction, std::string_view detail) {
  const auto now = std::chrono::steady_clock::now();
  if (!bar_ || now - last_ < kEvery) return;
  last_ = now;
  const double all = std::max<double>(static_cast<double>(total_), 1);
  const double share = std::min((static_cast<double>(done_) + fraction) / all, 1.0);
  const auto full = static_cast<std::size_t>(share * kBar);
  std::string text = "\r\033[K" + what_ + " [" + std::string(full, '#') +
                     std::string(kBar - full, '.') + "]" + show_number(" %3.0f%%", share * 100);
  const double spent = std::chrono::duration<double>(now - start_).count();
  if (share > 0.02 && share < 1) text += ", " + show_seconds(spent / share - spent) + " to go";
  if (!detail.empty()) text += " (" + std::string(detail) + ")";
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::line(std::string_view text) {
  if (!quiet_) error(text);
}

void Progress::error(std::string_view text) {
  clear();
  // One write: lines of other ranks must not come in between.
  const std::string whole = prefix_ + std::string(text) + "\n";
  std::fputs(whole.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace millpond::cli
