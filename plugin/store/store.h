// One streamed optimizer on one rank: its shards, their state and counters, and what may be called
// when.
//
//   unbound           held_ NULL, or parked: state of an earlier bind that the next one takes over
//   bound             held_ set, the host's pointers in work_
//   poisoned          beside either: step, save_to, refresh_main refuse until load_from
//   suspended         of the whole runtime (phase/1)
//
// All members run on the thread inside an ABI call (call.h), but for SaveProgress. A save is
// written by a job on a thread of its own (save_job.h), which touches nothing of the store.
#ifndef MILLPOND_PLUGIN_STORE_STORE_H_
#define MILLPOND_PLUGIN_STORE_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millpond/checkpoint.h"
#include "millpond/error.hpp"
#include "millpond/host.h"
#include "millpond/report.h"
#include "plugin/device/work.h"
#include "plugin/guard/profile.h"
#include "plugin/pipeline/pipeline.h"
#include "plugin/store/save.h"

namespace millpond::plugin {

class Runtime;
class SaveJob;
struct SaveOrder;
struct ScratchFiles;

// State that outlives a bind: the streamed bytes, and whose they are. Profile, plan and counters
// all go by shard index.
struct HeldState {
  Profile profile;  // as bound: identities, groups, topology
  std::unique_ptr<StreamedState> streamed;
  std::vector<std::uint64_t> steps;  // completed steps of each shard
  std::uint64_t completed = 0;       // completed steps of the store, skipped ones not counted
  std::vector<std::pair<std::uint64_t, std::uint32_t>> by_id;  // shard id and index, sorted

  // The index of the shard, or nothing.
  std::optional<std::uint32_t> find(std::uint64_t shard_id) const;
};

// What load_from verified and has not installed yet (MILLPOND_IO_STAGE): a state of its own in new
// files, with the live profile's shard order.
struct StagedLoad {
  std::string save_id;
  std::string path;                // where it is
  std::uint64_t flags = 0;         // of load_from
  std::vector<std::string> saves;  // that might have been taken, newest first
  std::unique_ptr<StreamedState> streamed;
  std::vector<std::uint64_t> steps;
  std::uint64_t completed = 0;
  std::uint32_t saved_stores = 0;  // of the save, on all ranks
  bool whole = false;       // all that the save's store of this name has, made by the same ranks
  bool write_model = true;  // not MILLPOND_IO_KEEP_MODEL
  millpond_stream stream{};
};

// Where a store's shards are: all on one device.
struct HomeDevice {
  std::int32_t type = MILLPOND_DEVICE_CPU;
  std::int32_t id = 0;
};

class Store {
 public:
  Store(Runtime& runtime, std::string uid);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  Runtime& runtime() { return runtime_; }
  const std::string& uid() const { return uid_; }
  bool bound() const { return bound_; }
  bool poisoned() const { return poison_.has_value(); }
  std::string poison_reason() const { return poison_.value_or(""); }
  StreamedState* streamed() { return held_ == nullptr ? nullptr : held_->streamed.get(); }
  StreamedState* staged_state() { return staged_ ? staged_->streamed.get() : nullptr; }

  // bind.cc. `report` receives the serialized BindReport whenever the guard judged.
  void bind(const millpond_bind_args& args, const std::vector<millpond_shard_pointers>& pointers);
  const std::string& report() const { return report_; }
  void unbind();
  void refuse_bind();  // of a bind whose arguments cannot even be read
  void detach();       // what unbind and a failed bind do: the state is parked
  std::size_t groups() const { return held_ == nullptr ? 0 : held_->profile.groups.size(); }

  // step.cc. True: skipped. `groups` in any order.
  bool step(const millpond_step_args& args, const std::vector<millpond_group_step>& groups);
  // State, wakefulness and health, before a step's arguments are looked at.
  void require_ready(const char* operation);
  // Where the step's groups are read to; keeps its capacity.
  std::vector<millpond_group_step>& step_groups() { return step_groups_; }
  // refresh.cc
  void refresh_main(const millpond_refresh_args& args);

  // save.cc. Freezes the state and starts the job that writes it below <path>/<save id>/; without
  // the BACKGROUND flag it waits for the job. Without the COMMIT flag the result goes to
  // runtime().open_save() when the job is collected. A failure to start changes nothing.
  void save_to(const millpond_io_args& args);
  // Until no save is under way; then throws the newest save's failure.
  void wait_save();
  // The same without throwing. The host's progress callback is called meanwhile, and may cancel.
  void finish_save();
  // Before the store goes. `give_up`: a save that somebody else would have to commit is cancelled.
  // A job that hangs in the kernel for longer than io_timeout_s is left behind.
  void end_save(bool give_up);
  bool saving_part() const;  // a job is under way that save_commit would close

  // load.cc. Verifies everything into runtime().make_state(plan, uid), then install_load(), or
  // leaves it in staged_ with MILLPOND_IO_STAGE. A refusal changes nothing.
  void load_from(const millpond_io_args& args);
  StagedLoad verify_load(const millpond_io_args& args);

  // install.cc. The staged state becomes the live one: counters too, model parameters := rounded
  // mains unless the load said no; the poison goes. Throws only while it writes model parameters
  // (the store is poisoned then).
  void install_load(StagedLoad load);
  void stage_load(StagedLoad load);  // replaces an older one
  // The same with another save of the directory. A refusal leaves nothing staged.
  void stage_again(const std::string& save_id);
  std::optional<StagedLoad> take_staged();
  const std::optional<StagedLoad>& staged() const { return staged_; }
  void drop_staged();

  // state.cc (state/1)
  void read_state(std::uint64_t shard_id, std::uint32_t segment, std::uint64_t begin,
                  std::uint64_t count, float* values);
  void write_state(std::uint64_t shard_id, std::uint32_t segment, std::uint64_t begin,
                   std::uint64_t count, const float* values);
  std::uint64_t get_step(std::uint64_t shard_id);
  void set_step(std::uint64_t shard_id, std::uint64_t step);

  // phase/1: the device's memory, where the store is bound.
  void suspend_device();
  void resume_device();
  std::uint64_t device_bytes() const { return device_ == nullptr ? 0 : device_->device_bytes(); }

  // report/1
  void last_step(millpond_step_figures* figures) const { *figures = figures_; }
  void plan_figures(millpond_plan_figures* figures) const;

  SaveProgress& save_progress() { return *save_progress_; }
  const std::optional<Error>& save_failure() const { return save_failure_; }

  // Poison and the verdict that agree collects.
  void poison(const std::string& why);
  void fail(const Error& error);  // a step that failed: agree tells it
  void notice_failure();          // of a transfer that was in flight between calls: poisons
  const std::optional<Error>& verdict() const { return verdict_; }
  void clear_verdict() { verdict_.reset(); }
  // Throw Error(E_STATE) or Error(E_POISONED) with what to do.
  void require_state(const char* operation) const;  // bound, or parked state is there
  void require_bound(const char* operation) const;
  void require_healthy(const char* operation);
  void require_awake(const char* operation) const;

  // Gives up the streamed state (destroy, shut down).
  void drop_state();
  HeldState* held() { return held_.get(); }
  const HeldState* held() const { return held_.get(); }

 private:
  friend class Binding;
  void require_values(const char* operation);
  std::vector<std::uint32_t> tiles_of_range(std::uint32_t shard, std::uint32_t segment,
                                            std::uint64_t begin, std::uint64_t count,
                                            const void* values, const char* operation) const;
  std::uint32_t shard_index(std::uint64_t shard_id, const char* operation) const;
  void check_step(const millpond_step_args& args, const std::vector<millpond_group_step>& groups);
  void check_gradients(const millpond_step_args& args);
  kernels::Hyper hyper_of(const millpond_group_step& group, std::uint64_t step,
                          float grad_scale) const;
  void choose_scalars(const std::vector<millpond_group_step>& groups, float grad_scale);
  void list_tiles();
  void count_step();
  void tell_step();
  void write_models(millpond_stream stream);
  void save_alone(const std::string& path, const std::string& save_id);
  void save_part(const std::string& path, const std::string& save_id);
  // `order`: whether the save is complete by itself, and what it removes; the rest is filled in.
  void start_save(const std::string& path, const std::string& save_id, SaveOrder order);
  ScratchFiles files_to_go_on_in(StreamedState& state, SaveOrder& order);
  void save_failed(const Error& error);
  void collect_save();

  Runtime& runtime_;
  std::string uid_;
  bool bound_ = false;
  std::unique_ptr<HeldState> held_;
  std::optional<std::string> poison_;  // why
  std::optional<Error> verdict_;       // the failure that the next agree tells
  std::string report_;
  millpond_step_figures figures_{};

  // While bound. Sized at bind: a step allocates nothing.
  kernels::Variant variant_ = kernels::Variant::kHost;
  HomeDevice home_;
  std::unique_ptr<Device> device_;
  StepWork work_;
  struct Gradient {
    const void* pointer = nullptr;
    kernels::Element element = kernels::Element::kFp32;
    bool active = false;
  };
  std::vector<Gradient> gradients_;         // of this step, by shard
  std::vector<const void*> last_grads_;     // of the last bind or accepted step
  std::vector<std::uint32_t> group_of_;     // by shard: index in profile.groups
  std::vector<std::uint32_t> given_group_;  // by profile group: index in the step's groups
  std::vector<std::uint32_t> order_;        // shards by (group, next step)
  std::vector<std::uint32_t> tiles_;        // of this step
  std::vector<millpond_group_step> step_groups_;

  std::shared_ptr<SaveProgress> save_progress_ = std::make_shared<SaveProgress>();
  std::unique_ptr<SaveJob> save_job_;  // under way, or not collected yet
  std::string save_id_;                // of the newest save
  std::optional<Error> save_failure_;  // of the newest save
  std::optional<StagedLoad> staged_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_STORE_H_
