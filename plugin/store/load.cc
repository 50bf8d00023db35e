#include "plugin/store/load.h"

#include "checkpoint/saves.h"
#include "plugin/io/posix_file_system.h"
#include "plugin/store/binding.h"
#include "plugin/store/claims.h"
#include "plugin/store/counted_work.h"
#include "plugin/store/mismatch.h"
#include "plugin/store/restore.h"
#include "plugin/store/runtime.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kLoadFlags =
    MILLPOND_IO_STAGE | MILLPOND_IO_KEEP_MODEL | MILLPOND_IO_INIT_FROM_MODEL | MILLPOND_IO_CONVERT;

// The formats that were converted, for the log.
std::string converted(const ShardSources& sources, const StagedLoad& load) {
  std::string text;
  const auto& now = load.streamed->plan().options.storage;
  for (std::uint32_t s = 0; s < kSegments && !sources.stores().empty(); ++s) {
    const kernels::Storage was = sources.stores().front()->manifest().storage[s];
    if (was == now[s]) continue;
    text += std::string(", ") + checkpoint::segment_name(s) + " converted from " +
            kernels::storage_name(was) + " to " + kernels::storage_name(now[s]);
  }
  return text;
}

}  // namespace

Loading::Loading(Store& store) : store_(store), runtime_(store.runtime()) {}

Loading::~Loading() {
  try {
    if (fresh_ != nullptr) runtime_.retire_state(std::move(fresh_));
    if (planned_) runtime_.plan_tier(nullptr, nullptr);
  } catch (const std::exception& error) {
    runtime_.host().log(MILLPOND_LOG_ERROR,
                        std::string("giving up a refused load's files: ") + error.what());
  }
}

void Loading::make_state() {
  StreamedState* const live = store_.streamed();
  fresh_ = runtime_.make_state(live->plan(), store_.uid());
  planned_ = true;
  runtime_.plan_tier(fresh_.get(), live);
}

void Loading::visit(const std::vector<std::uint32_t>& tiles, TileWork& work) {
  if (tiles.empty()) return;
  std::uint64_t done = 0;
  CountedWork watched(work, runtime_.host(), "load", &done, fresh_->plan().state_bytes);
  runtime_.pipeline().visit(*fresh_, tiles, Access::kOverwrite, watched, nullptr);
}

std::unique_ptr<StreamedState> Loading::finish() {
  if (!fresh_->plan().tiles.empty()) runtime_.pipeline().flush(*fresh_);
  const std::uint64_t bytes = fresh_->plan().state_bytes;
  runtime_.host().progress("load", bytes, bytes);
  return std::move(fresh_);
}

StagedLoad Loading::from_checkpoint(checkpoint::FileSystem& fs, const std::string& save_id,
                                    bool convert) {
  const checkpoint::Commit commit = checkpoint::find_save(fs, save_id);
  const Profile& live = store_.held()->profile;
  const ShardSources sources(fs, commit, store_.uid(), live);
  for (const auto& reader : sources.stores()) {
    check_storage(reader->manifest(), store_.streamed()->plan().options, convert,
                  fs.shown(reader->directory() + "/" + checkpoint::kManifestName));
  }
  StagedLoad load;
  load.save_id = commit.save_id;
  load.steps = sources.counters(live);
  load.completed = sources.completed();
  load.saved_stores = static_cast<std::uint32_t>(commit.stores.size());
  load.whole = sources.same_ranks();

  make_state();
  Restorer restorer(sources);
  const Plan& plan = fresh_->plan();
  std::vector<std::uint32_t> tiles;
  for (std::uint32_t t = 0; t < plan.tiles.size(); ++t) {
    // A tile of moments only has nothing in it while there are none.
    if (plan.tiles[t].bytes[MILLPOND_SEGMENT_MAIN] != 0 ||
        restorer.brings_moments(plan, plan.tiles[t])) {
      tiles.push_back(t);
    }
  }
  CallOnTile work([&](TileView& tile) { restorer.fill(tile); });
  visit(tiles, work);
  load.streamed = finish();
  runtime_.host().log(
      MILLPOND_LOG_INFO,
      "store " + store_.uid() + ": read " + std::to_string(restorer.bytes_read()) + " bytes of " +
          std::to_string(sources.stores().size()) + " store(s) of save " + commit.save_id +
          (sources.resharded() ? ", cut anew for this rank" : "") + converted(sources, load));
  return load;
}

StagedLoad Loading::from_model(Device& device, const std::vector<ShardWork>& work,
                               millpond_stream stream) {
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (work[i].numel == 0 || work[i].moments_only || work[i].model != nullptr) continue;
    throw Error(MILLPOND_E_ARGUMENT, "load",
                "the mains cannot come from the model: the host keeps this parameter itself")
        .field(store_.held()->profile.shards[i].key);
  }
  make_state();
  const Plan& plan = fresh_->plan();
  std::vector<std::uint32_t> tiles;
  for (std::uint32_t t = 0; t < plan.tiles.size(); ++t) {
    if (plan.tiles[t].bytes[MILLPOND_SEGMENT_MAIN] != 0) tiles.push_back(t);
  }
  const std::vector<std::uint8_t> chosen(work.size(), 1);
  visit(tiles, device.begin_fill_main(work, chosen, stream));
  StagedLoad load;
  load.steps.assign(work.size(), 0);
  load.streamed = finish();
  return load;
}

void Store::load_from(const millpond_io_args& args) {
  require_awake("load_from");
  require_bound("load_from");
  finish_save();
  try {
    StagedLoad load = verify_load(args);
    if ((args.flags & MILLPOND_IO_STAGE) != 0) {
      stage_load(std::move(load));
    } else {
      std::vector<std::string> left;
      if (!load.save_id.empty()) left = left_behind(*this, load, runtime_.stores());
      install_load(std::move(load));
      if (left.empty()) return;
      runtime_.host().log(MILLPOND_LOG_WARNING,
                          "store " + uid_ + ": the checkpoint has " + std::to_string(left.size()) +
                              " parts that this store does not have; they are lost unless another "
                              "rank loads them: " +
                              left.front() + (left.size() > 1 ? ", ..." : ""));
    }
  } catch (const Error& error) {
    // A refusal of a part refuses the whole that load_commit would install.
    if ((args.flags & MILLPOND_IO_STAGE) != 0) {
      drop_staged();
      runtime_.note_load_failure(error);
    }
    throw;
  }
}

void Store::stage_again(const std::string& save_id) {
  const std::string path = staged_->path;
  millpond_io_args args{};
  args.path = {path.data(), path.size()};
  args.save_id = {save_id.data(), save_id.size()};
  args.flags = staged_->flags;
  args.stream = staged_->stream;
  drop_staged();
  stage_load(verify_load(args));
}

StagedLoad Store::verify_load(const millpond_io_args& args) {
  if ((args.flags & ~kLoadFlags) != 0) {
    throw Error(MILLPOND_E_ARGUMENT, "load_from", "flags that do not belong to load_from")
        .field("io_args.flags")
        .want(kLoadFlags, args.flags);
  }
  check_stream(args.stream, home_, "io_args.stream", "load_from");
  const std::string path = text_of(args.path), id = text_of(args.save_id);
  const bool may_be_absent = (args.flags & MILLPOND_IO_INIT_FROM_MODEL) != 0 && id.empty();
  std::unique_ptr<checkpoint::FileSystem> fs;
  bool absent = false;
  try {
    fs = open_file_system(path, false);
  } catch (const Error& error) {
    if (!may_be_absent || error.code() != MILLPOND_E_MISSING) throw;
    absent = true;
  }
  if (!absent && may_be_absent) {
    const checkpoint::Saves saves = checkpoint::list_saves(*fs);
    absent = saves.committed.empty() && saves.unreadable.empty();
  }
  StagedLoad load;
  {
    Loading loading(*this);
    load = absent ? loading.from_model(*device_, work_.shards, args.stream)
                  : loading.from_checkpoint(*fs, id, (args.flags & MILLPOND_IO_CONVERT) != 0);
  }
  load.path = path;
  load.flags = args.flags;
  if (!id.empty() || absent) {
    load.saves = {load.save_id};
  } else {
    for (const checkpoint::Commit& commit : checkpoint::list_saves(*fs).committed) {
      load.saves.push_back(commit.save_id);
    }
  }
  load.write_model = !absent && (args.flags & MILLPOND_IO_KEEP_MODEL) == 0;
  load.stream = args.stream;
  runtime_.host().log(MILLPOND_LOG_INFO,
                      "store " + uid_ + ": " +
                          (absent ? "no streamed state in " + path + ", mains taken from the model"
                                  : "verified save " + load.save_id + " of " + path + ", step " +
                                        std::to_string(load.completed)));
  return load;
}

}  // namespace millpond::plugin
