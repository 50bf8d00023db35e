// One load while it is under way: everything is verified into a state of its own, beside the live
// one, and handed over at the end, or goes.
#ifndef MILLPOND_PLUGIN_STORE_LOAD_H_
#define MILLPOND_PLUGIN_STORE_LOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/store_reader.h"
#include "plugin/store/store.h"

namespace millpond::plugin {

class Loading {
 public:
  explicit Loading(Store& store);
  // Gives up what was not taken, and gives the tier back to the live state.
  ~Loading();
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  // The store's part of a committed save; `save_id` empty: the newest.
  StagedLoad from_checkpoint(checkpoint::FileSystem& fs, const std::string& save_id, bool convert);
  // No checkpoint: mains := model, no moments, counters 0. `work` describes the live shards.
  StagedLoad from_model(Device& device, const std::vector<ShardWork>& work, millpond_stream stream);

 private:
  void make_state();
  void visit(const std::vector<std::uint32_t>& tiles, TileWork& work);
  std::unique_ptr<StreamedState> finish();

  Store& store_;
  Runtime& runtime_;
  std::unique_ptr<StreamedState> fresh_;
  bool planned_ = false;  // the tier was divided without the live state
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_LOAD_H_
