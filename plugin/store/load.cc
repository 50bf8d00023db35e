#include "plugin/store/load.h"

#include "checkpoint/saves.h"
#include "plugin/io/posix_file_system.h"
#include "plugin/store/binding.h"
#include "plugin/store/restore.h"
#include "plugin/store/runtime.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kLoadFlags =
    MILLPOND_IO_STAGE | MILLPOND_IO_KEEP_MODEL | MILLPOND_IO_INIT_FROM_MODEL | MILLPOND_IO_CONVERT;

std::string text_of(const millpond_str& text) {
  return text.len == 0 ? std::string() : std::string(text.ptr, text.len);
}

const checkpoint::StoreRecord& find_store(const checkpoint::FileSystem& fs,
                                          const checkpoint::Commit& commit,
                                          const std::string& uid) {
  if (const checkpoint::StoreRecord* record = commit.find(uid)) return *record;
  std::string names;
  for (const checkpoint::StoreRecord& store : commit.stores) {
    if (names.size() > 200) {
      names += ", ...";
      break;
    }
    names += (names.empty() ? "" : ", ") + store.uid;
  }
  throw Error(MILLPOND_E_MISSING, "load",
              "the checkpoint has no store " + uid + "; it has " +
                  (names.empty() ? "none" : names) + " (world size " +
                  std::to_string(commit.world_size) + ")")
      .path(fs.shown(commit.save_id + "/" + checkpoint::kCommitName))
      .remedy("Load with the number of ranks and stores that saved");
}

// The counters by live shard; equal within a group where the live family counts per group.
std::vector<std::uint64_t> counters(const checkpoint::Manifest& manifest, const Profile& live,
                                    const std::vector<std::uint32_t>& source,
                                    const std::string& path) {
  std::vector<std::uint64_t> steps(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) steps[i] = manifest.shards[source[i]].step;
  for (const Group& group : live.groups) {
    if (!group.counter_per_group) continue;
    std::size_t first = steps.size();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (live.shards[i].group_id != group.id) continue;
      if (first == steps.size()) first = i;
      if (steps[i] == steps[first]) continue;
      throw Error(MILLPOND_E_MISMATCH, "load",
                  "the group \"" + group.key + "\" has one step counter, but " +
                      live.shards[first].key + " and " + live.shards[i].key +
                      " have different ones in the checkpoint")
          .path(path)
          .field(live.shards[i].key)
          .want(steps[first], steps[i]);
    }
  }
  return steps;
}

// Tells the host how far the work is and lets it cancel.
class WithProgress final : public TileWork {
 public:
  WithProgress(TileWork& work, Host& host, std::uint64_t total)
      : work_(work), host_(host), total_(total) {}
  std::uint32_t capacity() const override { return work_.capacity(); }
  void start(TileView* tile) override {
    host_.progress("load", done_, total_);
    work_.start(tile);
    done_ += tile->tile->total_bytes;
  }
  TileView* finished(bool wait) override { return work_.finished(wait); }

 private:
  TileWork& work_;
  Host& host_;
  std::uint64_t done_ = 0;
  std::uint64_t total_;
};

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
  WithProgress watched(work, runtime_.host(), fresh_->plan().state_bytes);
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
  checkpoint::StoreReader reader(fs, commit.save_id, find_store(fs, commit, store_.uid()));
  const std::string path = fs.shown(reader.directory() + "/" + checkpoint::kManifestName);
  const Profile& live = store_.held()->profile;
  const std::vector<std::uint32_t> source = match_checkpoint(reader.manifest(), live, path);
  check_storage(reader.manifest(), store_.streamed()->plan().options, convert, path);
  StagedLoad load;
  load.save_id = commit.save_id;
  load.steps = counters(reader.manifest(), live, source, path);
  load.completed = reader.manifest().step;

  make_state();
  Restorer restorer(reader, source);
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
      install_load(std::move(load));
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
