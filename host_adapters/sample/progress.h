// What a person sees while a run goes on, on the error stream: one line that is rewritten on a
// terminal, lines of their own for what happened elsewhere.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_PROGRESS_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace millpond::sample {

class Progress {
 public:
  // Ranks above 0 tell only what must be told, with their number before it.
  explicit Progress(bool quiet, std::uint32_t rank = 0, std::uint32_t ranks = 1);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Only on a terminal, and at most ten times a second.
  void step(std::uint64_t step, std::uint64_t steps, double bits_per_byte);
  // A line that stays; also with --quiet where `always`.
  void line(std::string_view text, bool always = false);
  // A line that stays, also with --quiet, of rank 0: what all ranks have done together.
  void milestone(std::string_view text);

 private:
  void clear();

  std::uint32_t rank_;
  std::string prefix_;
  bool quiet_;
  bool terminal_;
  bool shown_ = false;
  std::uint64_t first_ = 0;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_PROGRESS_H_
