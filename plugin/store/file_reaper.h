// Closes scratch files on a thread of its own: giving back the space of a large file takes seconds,
// and on a drive that does not answer it never ends.
#ifndef MILLPOND_PLUGIN_STORE_FILE_REAPER_H_
#define MILLPOND_PLUGIN_STORE_FILE_REAPER_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>

#include "plugin/io/scratch.h"

namespace millpond::plugin {

class FileReaper {
 public:
  // `patience`: how long wait() and the destructor wait at most.
  explicit FileReaper(std::chrono::milliseconds patience);
  ~FileReaper();  // what is not closed by then is left to the thread
  FileReaper(const FileReaper&) = delete;
  FileReaper& operator=(const FileReaper&) = delete;

  // A second descriptor of the file: while it is open, closing the first costs nothing. Empty where
  // none can be had.
  static Fd second(int fd);
  // The thread, and room for this many files more: close() then allocates nothing.
  void prepare(std::size_t files);
  // Closes it in the background, or here and now where no thread can be had.
  void close(Fd file);
  // Until everything handed over so far is closed: before space is reserved anew. False: it is not.
  bool wait();

 private:
  struct State;
  void start();
  static void run(State& state);

  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this
  std::chrono::milliseconds patience_;
  std::thread thread_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_FILE_REAPER_H_
