// What a person sees on the error stream while something long goes on: a bar that is rewritten on a
// terminal, nothing otherwise; and lines that stay.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_PROGRESS_H_
#define MILLPOND_HOST_ADAPTERS_CLI_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace millpond::cli {

class Progress {
 public:
  // Of several ranks only the first has a bar; lines have a rank's number before them.
  explicit Progress(bool quiet, std::uint32_t rank = 0, std::uint32_t ranks = 1);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What follows is of this work, `total` pieces in all where that is known, else 0.
  void begin(std::string what, std::uint64_t total);
  // `done` of `total` pieces, and a fraction of the next one.
  void at(std::uint64_t done, double fraction = 0);
  // For callbacks that count something else within the present piece.
  void part(std::string_view what, std::uint64_t done, std::uint64_t total);
  void line(std::string_view text);   // not with --quiet
  void error(std::string_view text);  // always

 private:
  void clear();
  void show(double fraction, std::string_view detail);

  bool quiet_;
  bool bar_;
  std::string prefix_;
  bool shown_ = false;
  std::string what_;
  std::uint64_t total_ = 0;
  std::uint64_t done_ = 0;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_PROGRESS_H_
