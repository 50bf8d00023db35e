#include "plugin/store/runtime.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/commit.h"
#include "plugin/store/host_memory.h"
#include "plugin/store/store.h"

namespace millpond::plugin {
namespace {

// State of which a step moves so much that half a second of measuring the drive is nothing beside
// it.
constexpr std::uint64_t kWorthMeasuring = 1ull << 30;

// Processors that this process may run on, shared among the node's ranks.
std::uint32_t choose_threads(const Options& options) {
  if (options.update_threads != 0) return options.update_threads;
  cpu_set_t set;
  CPU_ZERO(&set);
  std::uint32_t processors = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    processors = static_cast<std::uint32_t>(CPU_COUNT(&set));
  } else {
    processors = std::thread::hardware_concurrency();
  }
  return std::max(1u, processors / options.local_size);
}

std::chrono::milliseconds timeout_of(const Options& options) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(options.io_timeout_s * 1000.0));
}

}  // namespace

Runtime::Runtime(const millpond_host_api& api, Options options, std::uint32_t minor)
    : minor_(minor), options_(std::move(options)), host_(api, options_.log_level), pid_(getpid()) {
  EngineChoice choice = make_raw_engine(options_.io_engine, options_.queue_depth);
  engine_reason_ = std::move(choice.reason);
  engine_ = std::make_unique<Engine>(std::move(choice.raw), timeout_of(options_));
  engine_note_ = engine_->note();
  host_.log(MILLPOND_LOG_INFO, engine_reason_);
  pool_ = std::make_unique<ThreadPool>(choose_threads(options_));
  reaper_ = std::make_unique<FileReaper>(timeout_of(options_));
}

Runtime::~Runtime() = default;

std::chrono::milliseconds Runtime::patience() const { return timeout_of(options_); }

bool Runtime::forked() const { return getpid() != pid_; }

Pipeline& Runtime::pipeline() {
  if (pipeline_ == nullptr) {
    throw Error(MILLPOND_E_INTERNAL, "runtime", "the pipeline is used before the first bind");
  }
  return *pipeline_;
}

CudaPin& Runtime::cuda_pin(std::int32_t device_id) {
  if (cuda_pin_ == nullptr) {
    cuda_pin_ = make_cuda_pin(host_, device_id);
    pipeline().use_pin(cuda_pin_.get());
  }
  return *cuda_pin_;
}

void Runtime::ensure_resources(std::uint64_t state_bytes) {
  if (pipeline_ != nullptr) return;
  std::vector<std::unique_ptr<ScratchRoot>> roots;
  for (const std::string& path : options_.scratch) {
    auto root = std::make_unique<ScratchRoot>(path, options_.direct);
    const DirectoryAbility& ability = root->ability();
    host_.log(MILLPOND_LOG_INFO, "scratch " + root->path() + ": " +
                                     (ability.direct ? "O_DIRECT" : "buffered") +
                                     (ability.tmpfile ? ", anonymous files" : ", named files") +
                                     (ability.reason.empty() ? "" : " (" + ability.reason + ")"));
    if (root->reclaimed() != 0) {
      host_.log(MILLPOND_LOG_INFO, "scratch " + path + ": reclaimed " +
                                       std::to_string(root->reclaimed()) +
                                       " directories of runs that are gone");
    }
    roots.push_back(std::move(root));
  }
  PipelineOptions pipeline_options;
  // Buffered files have in the page cache what the engine has under way.
  const bool direct = std::all_of(roots.begin(), roots.end(),
                                  [](const auto& root) { return root->ability().direct; });
  MemoryChoice memory =
      choose_host_memory(options_, direct ? 0 : engine_->depth() * kMostTransferBytes);
  pipeline_options.host_memory_bytes = memory.cap;
  pipeline_options.patience = patience();
  if (state_bytes >= kWorthMeasuring && state_bytes > memory.cap) {
    speed_ = measure_speed(options_);
    host_.log(speed_.measured ? MILLPOND_LOG_INFO : MILLPOND_LOG_WARNING, speed_.sentence);
  }
  if (speed_.measured) {
    pipeline_options.depth_bytes = depth_bytes_for(speed_);
    pipeline_options.ring_bytes =
        std::max(pipeline_options.ring_bytes, pipeline_options.depth_bytes / 2);
  }
  pipeline_ = std::make_unique<Pipeline>(pipeline_options, *engine_, *pool_);
  roots_ = std::move(roots);
  reserved_.assign(roots_.size(), 0);
  memory_cap_ = memory.cap;
  memory_choice_ = std::move(memory.sentence);
}

DriveProbe& Runtime::kept_probe(const DriveRequest& request, const ProbeBeat& beat) {
  if (kept_probe_ == nullptr || kept_request_ != request) {
    kept_probe_.reset();  // its space first
    kept_probe_ = std::make_unique<DriveProbe>(request, beat);
    kept_request_ = request;
  }
  return *kept_probe_;
}

Store& Runtime::create_store(std::string_view uid) {
  try {
    checkpoint::check_uid(uid);
  } catch (const Error& error) {
    throw Error(MILLPOND_E_ARGUMENT, "create", error.reason() + ": \"" + std::string(uid) + "\"")
        .field("uid")
        .remedy("Name stores like rank00000/opt0_0");
  }
  for (const auto& store : stores_) {
    if (store->uid() == uid) {
      throw Error(MILLPOND_E_ARGUMENT, "create",
                  "the runtime has a store of this name already: \"" + store->uid() + "\"")
          .field("uid")
          .remedy("Destroy the other one first, or choose another name");
    }
  }
  stores_.push_back(std::make_unique<Store>(*this, std::string(uid)));
  return *stores_.back();
}

void Runtime::destroy_store(Store* store) {
  const auto place = std::find_if(stores_.begin(), stores_.end(),
                                  [&](const auto& other) { return other.get() == store; });
  if (place == stores_.end()) return;
  // Gone whatever happens below.
  const std::unique_ptr<Store> owned = std::move(*place);
  stores_.erase(place);
  const bool held = owned->streamed() != nullptr;
  owned->end_save(false);
  owned->drop_state();
  if (!held) return;
  try {
    plan_tier(nullptr, nullptr);
  } catch (const Error& error) {
    // The store is gone all the same; the others keep their share until the next bind.
    host_.log(MILLPOND_LOG_WARNING, std::string("dividing the tier anew: ") + error.what());
  }
}

std::uint64_t Runtime::shut_down() {
  while (!stores_.empty()) {
    const std::unique_ptr<Store> owned = std::move(stores_.back());
    stores_.pop_back();
    try {
      owned->end_save(true);
      owned->drop_state();
    } catch (const std::exception& error) {
      host_.log(MILLPOND_LOG_WARNING, "destroy " + owned->uid() + ": " + error.what());
    }
  }
  const bool owned = engine_->owned_bytes() != 0 && !engine_->drain_owned(timeout_of(options_));
  const std::uint64_t leaked = owned ? engine_->owned_bytes() : 0;
  if (leaked != 0) {
    // The kernel may still write there: memory and ring stay until the process ends.
    static_cast<void>(pipeline_.release());
    static_cast<void>(engine_.release());
  }
  // A drive that does not answer would hold whoever removes a directory from it. The next run
  // reclaims what is left.
  if (leaked != 0 || !reaper_->wait()) {
    for (std::unique_ptr<ScratchRoot>& root : roots_) static_cast<void>(root.release());
  }
  return leaked;
}

void Runtime::poison_all(const std::string& why) {
  for (const auto& store : stores_) store->poison(why);
}

void Runtime::suspend(std::uint64_t flags) {
  if ((flags & ~static_cast<std::uint64_t>(MILLPOND_SUSPEND_HOST_TIER)) != 0) {
    throw Error(MILLPOND_E_ARGUMENT, "suspend", "unknown bits are set")
        .field("flags")
        .want(MILLPOND_SUSPEND_HOST_TIER, flags);
  }
  const bool give_tier = (flags & MILLPOND_SUSPEND_HOST_TIER) != 0;
  if (pipeline_ != nullptr) {
    pipeline_->settle();
    for (const auto& store : stores_) {
      store->notice_failure();
      store->suspend_device();
    }
    if (give_tier && !tier_suspended_) {
      const std::uint64_t bytes = pipeline_->host_bytes();
      pipeline_->suspend();
      tier_suspended_ = true;
      host_.log(MILLPOND_LOG_INFO,
                "suspended: gave back " + std::to_string(bytes) + " bytes of host memory");
    }
  }
  suspended_ = true;
}

void Runtime::resume() {
  if (tier_suspended_) {
    pipeline_->resume();
    tier_suspended_ = false;
  }
  for (const auto& store : stores_) store->resume_device();
  suspended_ = false;
}

void Runtime::figures(millpond_runtime_figures* figures) {
  if (pipeline_ != nullptr) {
    figures->host_bytes = pipeline_->host_bytes();
    figures->host_places = pipeline_->places();
    figures->ring_places = pipeline_->ring_places();
  }
  for (const auto& store : stores_) figures->device_bytes += store->device_bytes();
  for (const std::uint64_t bytes : reserved_) figures->scratch_bytes += bytes;
  figures->leaked_bytes = engine_->owned_bytes();
  std::strncpy(figures->engine, engine_->name(), sizeof(figures->engine) - 1);
  figures->direct = !roots_.empty() && std::all_of(roots_.begin(), roots_.end(), [](auto& root) {
    return root->ability().direct;
  });
  figures->update_threads = pool_->threads();
}

}  // namespace millpond::plugin
