// Closes scratch files on a thread of its own: giving back the space of a large file takes seconds.
#ifndef MILLPOND_PLUGIN_STORE_FILE_REAPER_H_
#define MILLPOND_PLUGIN_STORE_FILE_REAPER_H_

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "plugin/io/scratch.h"

namespace millpond::plugin {

class FileReaper {
 public:
  FileReaper() = default;
  ~FileReaper();  // waits until everything is closed
  FileReaper(const FileReaper&) = delete;
  FileReaper& operator=(const FileReaper&) = delete;

  // A second descriptor of the file: while it is open, closing the first costs nothing. Empty where
  // none can be had.
  static Fd second(int fd);
  // Closes it in the background, or here and now where no thread can be had.
  void close(Fd file);
  // Until everything handed over so far is closed: before space is reserved anew.
  void wait();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Fd> files_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_FILE_REAPER_H_
