// refresh_main: mains := model parameters widened, tile by tile; moments and counters stay.
#include <algorithm>

#include "plugin/store/binding.h"
#include "plugin/store/runtime.h"
#include "plugin/store/store.h"

namespace millpond::plugin {

void Store::refresh_main(const millpond_refresh_args& args) {
  require_ready("refresh_main");
  const std::vector<Shard>& shards = held_->profile.shards;
  if (args.shard_ids == nullptr && args.count != 0) {
    throw Error(MILLPOND_E_ARGUMENT, "refresh_main", "the pointer is NULL, the count is not 0")
        .field("refresh_args.shard_ids");
  }
  check_stream(args.stream, home_, "refresh_args.stream", "refresh_main");
  std::vector<std::uint8_t> chosen(shards.size(), args.shard_ids == nullptr ? 1 : 0);
  for (std::uint64_t i = 0; i < args.count; ++i) {
    const auto found = held_->find(args.shard_ids[i]);
    if (!found) {
      throw Error(MILLPOND_E_ARGUMENT, "refresh_main",
                  "the store has no shard with id " + std::to_string(args.shard_ids[i]))
          .path(uid_)
          .field("refresh_args.shard_ids[" + std::to_string(i) + "]")
          .at(i);
    }
    chosen[*found] = 1;
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const ShardWork& work = work_.shards[i];
    if (work.moments_only || work.numel == 0) chosen[i] = 0;  // it is its own main
    if (chosen[i] == 0 || work.model != nullptr) continue;
    throw Error(MILLPOND_E_ARGUMENT, "refresh_main",
                "the shard " + shards[i].key + " was bound without a model tensor to read")
        .path(uid_)
        .field("refresh_args.shard_ids")
        .remedy("Write its mains through state/1, or name the other shards");
  }
  const Plan& plan = held_->streamed->plan();
  std::vector<std::uint32_t> tiles;
  for (std::uint32_t t = 0; t < plan.tiles.size(); ++t) {
    const auto pieces = plan.pieces_of(plan.tiles[t]);
    if (std::any_of(pieces.begin(), pieces.end(),
                    [&](const Piece& piece) { return chosen[piece.shard] != 0; })) {
      tiles.push_back(t);
    }
  }
  if (tiles.empty()) return;
  try {
    TileWork& work = device_->begin_fill_main(work_.shards, chosen, args.stream);
    runtime_.pipeline().visit(*held_->streamed, tiles, Access::kUpdate, work, nullptr);
  } catch (const std::exception& error) {
    poison(std::string("refresh_main failed: ") + error.what());
    throw;
  }
}

}  // namespace millpond::plugin
