// A verified load becomes the live state.
#include "plugin/store/runtime.h"
#include "plugin/store/store.h"

namespace millpond::plugin {

void Store::install_load(StagedLoad load) {
  require_awake("load_from");
  require_bound("load_from");
  drop_staged();
  StreamedState* const old = held_->streamed.get();
  try {
    // The old state's tiles need not reach its files any more.
    runtime_.pipeline().discard(*old);
    runtime_.plan_tier(load.streamed.get(), old);
  } catch (...) {
    poison("its tiles were given up for a load that could not be installed");
    runtime_.retire_state(std::move(load.streamed));
    throw;
  }
  std::unique_ptr<StreamedState> gone = std::move(held_->streamed);
  held_->streamed = std::move(load.streamed);
  held_->steps = std::move(load.steps);
  held_->completed = load.completed;
  poison_.reset();
  verdict_.reset();
  runtime_.retire_state(std::move(gone));
  if (!load.write_model) return;
  try {
    write_models(load.stream);
  } catch (const std::exception& error) {
    poison(std::string("the loaded mains could not be written to the model: ") + error.what());
    throw;
  }
}

void Store::write_models(millpond_stream stream) {
  const Plan& plan = held_->streamed->plan();
  std::vector<std::uint32_t> tiles;
  for (std::uint32_t t = 0; t < plan.tiles.size(); ++t) {
    if (plan.tiles[t].bytes[MILLPOND_SEGMENT_MAIN] != 0) tiles.push_back(t);
  }
  if (tiles.empty()) return;
  TileWork& work = device_->begin_write_model(work_.shards, stream);
  runtime_.pipeline().visit(*held_->streamed, tiles, Access::kRead, work, nullptr);
}

}  // namespace millpond::plugin
