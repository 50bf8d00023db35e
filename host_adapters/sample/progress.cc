#include "host_adapters/sample/progress.h"

#include <unistd.h>

#include <cstdio>

namespace millpond::sample {

Progress::Progress(bool quiet, std::uint32_t rank, std::uint32_t ranks)
    : rank_(rank),
      prefix_(ranks > 1 ? "rank " + std::to_string(rank) + ": " : ""),
      quiet_(quiet || rank > 0),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

void Progress::step(std::uint64_t step, std::uint64_t steps, double bits_per_byte) {
  const auto now = std::chrono::steady_clock::now();
  if (first_ == 0) {
    first_ = step;
    start_ = now;
  }
  if (quiet_ || !terminal_ || (now - last_ < std::chrono::milliseconds(100) && step != steps)) {
    return;
  }
  last_ = now;
  const double spent = std::chrono::duration<double>(now - start_).count();
  const double each = step > first_ ? spent / static_cast<double>(step - first_) : 0.0;
  std::fprintf(stderr, "\r\033[Kstep %llu of %llu  %.3f bits/byte  %.0f ms a step  %.0f s to go",
               static_cast<unsigned long long>(step), static_cast<unsigned long long>(steps),
               bits_per_byte, each * 1e3, each * static_cast<double>(steps - step));
  std::fflush(stderr);
  shown_ = true;
}

void Progress::line(std::string_view text, bool always) {
  if (quiet_ && !always) return;
  clear();
  // One write: lines of other ranks must not come in between.
  const std::string whole = prefix_ + std::string(text) + "\n";
  std::fputs(whole.c_str(), stderr);
  std::fflush(stderr);
}

void Progress::milestone(std::string_view text) {
  if (rank_ != 0) return;
  clear();
  std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  std::fflush(stderr);
}

}  // namespace millpond::sample
