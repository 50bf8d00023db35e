// Closes scratch files on a thread of its own: giving back the space of a large file takes seconds,
// and on a drive that does not answer it never ends. Meanwhile the filesystem lets nobody reserve
// space (ext4: a journal's commit has to end first), so a file that is nobody else's is cut piece
// by piece, and whoever has to reserve some comes in between.
#ifndef MILLPOND_PLUGIN_STORE_FILE_REAPER_H_
#define MILLPOND_PLUGIN_STORE_FILE_REAPER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "plugin/io/scratch.h"

namespace millpond::plugin {

// Who may still have the file open. kNobody: it may be cut before it is closed.
enum class Others : std::uint8_t { kNobody, kPerhaps };

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
  void close(Fd file, Others others);
  // Until everything handed over so far is closed: before space is reserved anew. False: it is not.
  bool wait();

  // While one lives no file is cut; making it waits for a cut under way, which takes some
  // milliseconds, but not for a drive that does not answer. Not beside wait().
  class Pause {
   public:
    explicit Pause(FileReaper& reaper);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    FileReaper& reaper_;
  };

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
