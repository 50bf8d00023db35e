// What a process has once: options, host callbacks, scratch directories, engine, threads, pipeline,
// and the stores. The unit of everything atomic: verdict, poison, save, commit, load.
//
// Every member but forked() and the constructor runs under a Call (call.h): one thread at a time.
#ifndef MILLPOND_PLUGIN_STORE_RUNTIME_H_
#define MILLPOND_PLUGIN_STORE_RUNTIME_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "millpond/checkpoint.h"
#include "millpond/error.hpp"
#include "millpond/phase.h"
#include "millpond/report.h"
#include "plugin/core/host.h"
#include "plugin/core/thread_pool.h"
#include "plugin/device/cuda.h"
#include "plugin/io/engine.h"
#include "plugin/io/scratch.h"
#include "plugin/options/options.h"
#include "plugin/pipeline/pipeline.h"
#include "plugin/probe/drive.h"
#include "plugin/store/drive_rate.h"
#include "plugin/store/file_reaper.h"
#include "plugin/store/save.h"

namespace millpond::plugin {

class Store;

// A save that save_begin opened and save_commit has not closed. save_to adds to it: a store that
// wrote everything, or the first failure.
struct OpenSave {
  std::string path;  // the checkpoint's base directory
  std::string id;    // 32 hexadecimal digits
  std::uint64_t sequence = 0;
  millpond_group group{};
  std::vector<WrittenStore> written;
  std::optional<Error> failure;
  std::vector<std::string> leftovers;  // of killed attempts: save ids, still to be removed
};

// When what killed attempts left in a checkpoint's directory goes.
enum class Leftovers : std::uint8_t { kNow, kLater };

// Reserved files of one state, by bucket.
struct ScratchFiles {
  std::vector<Fd> files;
  std::vector<std::string> paths;
};

class Runtime {
 public:
  // Takes no scratch directory yet: those, and the pipeline's memory, come with the first bind.
  // Throws where the engine that the options name cannot be had.
  Runtime(const millpond_host_api& api, Options options, std::uint32_t minor);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Destroys everything that the kernel does not hold any more, within about io_timeout_s. What it
  // still holds is leaked on purpose (memory and descriptors): the bytes of it. 0: nothing leaked.
  // Afterwards only the destructor may be called.
  std::uint64_t shut_down();

  std::uint32_t minor() const { return minor_; }
  const Options& options() const { return options_; }
  Host& host() { return host_; }
  Engine& engine() { return *engine_; }
  ThreadPool& pool() { return *pool_; }
  Pipeline& pipeline();  // made by ensure_resources
  // Registers the tier with CUDA from the first store on that wants it. After ensure_resources.
  CudaPin& cuda_pin(std::int32_t device_id);
  bool has_pipeline() const { return pipeline_ != nullptr; }
  std::uint64_t memory_cap() const { return memory_cap_; }  // of the pinned region
  std::chrono::milliseconds patience() const;               // io_timeout_s
  const std::string& engine_reason() const { return engine_reason_; }

  // Scratch directories and the pipeline, at the first bind. `state_bytes`: of the store to come;
  // where it is large and does not fit the memory, the drive is measured first. Throws, and can be
  // tried again.
  void ensure_resources(std::uint64_t state_bytes);
  const DriveSpeed& drive_speed() const { return speed_; }
  // A probe whose file stays until another request or the runtime's end: repeated measurements
  // then do not write it again, nor leave the filesystem to remove it beside the step that follows.
  DriveProbe& kept_probe(const DriveRequest& request, const ProbeBeat& beat);

  // A state without contents for a plan: files reserved in the scratch directories so that their
  // bytes balance. Throws Error(E_NO_SPACE) with needed and free bytes; nothing is left behind.
  std::unique_ptr<StreamedState> make_state(const Plan& plan, const std::string& uid);
  // Further files for a state, in the same directories: a save freezes those it has. The spare ones
  // where there are some, which costs nothing whatever their size; else new ones. Their contents
  // are as they are.
  ScratchFiles next_files(StreamedState& state);
  // Closes, in the background, files of the state that nothing is read from any more, but for the
  // spare ones: the next save's. Allocates nothing after prepare_idle().
  void retire_idle(StreamedState& state) noexcept;
  void prepare_idle(std::size_t files) { reaper_->prepare(files); }
  // Forgets a state: waits for its transfers, drops its tiles, closes its files in the background.
  void retire_state(std::unique_ptr<StreamedState> state);
  // Divides the tier among the states of all stores, `extra` (may be NULL) included and `without`
  // (may be NULL) left out. Flushes everything.
  void plan_tier(StreamedState* extra, const StreamedState* without);
  // Bytes reserved for a state by scratch directory, in the directories' order.
  std::vector<std::uint64_t> bytes_by_root(const StreamedState& state) const;
  const std::vector<std::unique_ptr<ScratchRoot>>& roots() const { return roots_; }

  Store& create_store(std::string_view uid);  // Error(E_ARGUMENT, "uid")
  void destroy_store(Store* store);
  const std::vector<std::unique_ptr<Store>>& stores() const { return stores_; }

  // Runtime calls with a group. One, one, two and one allgather rounds, none for a group of one.
  void agree(millpond_group group);  // agree.cc
  // `chosen` is the save's id, or "": one is made. Rank 0's counts. In commit_rounds.cc.
  std::string save_begin(millpond_group group, const std::string& path,
                         const std::string& chosen = {}, Leftovers leftovers = Leftovers::kNow);
  void save_commit(millpond_group group, const std::string& save_id);  // commit_rounds.cc
  void load_commit(millpond_group group);                              // load_commit.cc
  std::optional<OpenSave>& open_save() { return open_save_; }
  // A load_from with MILLPOND_IO_STAGE that was refused: load_commit then installs nothing.
  void note_load_failure(const Error& error) {
    if (!load_failure_) load_failure_ = error;
  }

  // phase/1
  void suspend(std::uint64_t flags);
  void resume();
  bool suspended() const { return suspended_; }

  void figures(millpond_runtime_figures* figures);

  bool forked() const;  // the caller is a child of the process that made this

 private:
  friend class Call;
  void require_group(millpond_group group, const char* operation) const;
  std::optional<Error> verdict();  // this rank's, for agree
  ScratchFiles reserve_files(const Plan& plan, const std::string& uid,
                             const std::vector<std::uint32_t>& root);
  void close_files(Generation& idle) noexcept;
  void close_spares() noexcept;  // of all states
  void poison_all(const std::string& why);

  std::uint32_t minor_;
  Options options_;
  Host host_;
  pid_t pid_;
  std::mutex mutex_;
  std::atomic<std::thread::id> inside_{};  // the thread that is inside a call

  // In order of construction: what is below may use what is above.
  std::string engine_reason_;
  std::string engine_note_;  // Engine::note() when engine_reason_ was said
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<FileReaper> reaper_;
  std::vector<std::unique_ptr<ScratchRoot>> roots_;
  std::unique_ptr<CudaPin> cuda_pin_;
  std::unique_ptr<Pipeline> pipeline_;
  std::vector<std::unique_ptr<Store>> stores_;
  // Which root holds which file of a state, by bucket.
  struct Placement {
    const StreamedState* state = nullptr;
    std::vector<std::uint32_t> root;
  };
  std::vector<Placement> placements_;
  std::vector<std::uint64_t> reserved_;  // by root
  std::uint64_t memory_cap_ = 0;
  DriveSpeed speed_ = assumed_speed();
  std::optional<DriveRequest> kept_request_;
  std::unique_ptr<DriveProbe> kept_probe_;
  std::string memory_choice_;  // how the cap came about
  std::optional<OpenSave> open_save_;
  std::optional<Error> load_failure_;
  bool suspended_ = false;
  bool tier_suspended_ = false;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_RUNTIME_H_
