// One store's save while it is being written, on a thread of its own. It works on a snapshot and on
// files alone: the store may step, load, even go meanwhile.
#ifndef MILLPOND_PLUGIN_STORE_SAVE_JOB_H_
#define MILLPOND_PLUGIN_STORE_SAVE_JOB_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/manifest.h"
#include "millpond/error.hpp"
#include "plugin/pipeline/snapshot.h"
#include "plugin/store/save.h"

namespace millpond::plugin {

struct SaveOrder {
  std::string path;  // the checkpoint's base directory
  std::string save_id;
  checkpoint::Manifest manifest;
  std::shared_ptr<Snapshot> snapshot;
  std::vector<std::string> leftovers;  // save ids of killed attempts: removed before bytes come
  std::uint64_t bytes_per_s = 0;
  // Set: this store is all there is of the save, which counts at the end.
  std::optional<std::uint64_t> sequence;
};

struct SaveResult {
  WrittenStore written;          // where there is no failure
  std::optional<Error> failure;  // what the save had written is removed then
  std::vector<std::string> warnings;
  std::string summary;  // one line for the log
};

class SaveJob {
 public:
  // Starts at once. `progress` is reset by the caller and ends as WRITTEN or FAILED.
  SaveJob(SaveOrder order, std::shared_ptr<SaveProgress> progress);
  // Waits for the end; a thread that `end` gave up stays behind.
  ~SaveJob();
  SaveJob(const SaveJob&) = delete;
  SaveJob& operator=(const SaveJob&) = delete;

  const Snapshot& snapshot() const;
  bool committing() const;  // the order has a sequence
  bool done() const;
  // False: not done after `patience`.
  bool wait(std::chrono::milliseconds patience);
  // The thread hangs in the kernel: it is left to itself.
  void leave();
  // Once done.
  const SaveResult& result() const;

 private:
  struct State;
  static void run(State& state);
  static void write(State& state);

  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this
  std::thread thread_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_SAVE_JOB_H_
