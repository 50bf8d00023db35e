// Pieces of shards that the host's callbacks see: its own Adam, and its own parameter layout. On
// the calling thread, through fp32 buffers made at bind.
#ifndef MILLPOND_PLUGIN_DEVICE_HOST_PIECES_H_
#define MILLPOND_PLUGIN_DEVICE_HOST_PIECES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugin/device/slices.h"
#include "plugin/device/work.h"

namespace millpond::plugin {

// A callback gets at most this many elements at once; a multiple of 256.
inline constexpr std::uint64_t kPieceElements = 65'536;

class HostPieces {
 public:
  // update: room for the host's Adam; otherwise only what copy_main_to_model needs.
  HostPieces(Host& host, std::string uid, bool update);

  // The host's Adam on one run of an active shard: decode, callback, encode, write the model.
  // Throws the callback's error; the run's stored bytes may then be changed in part.
  void update(const TileView& tile, const PieceRun& run, const ShardWork& shard,
              const kernels::Hyper& hyper);

  // main handed to copy_main_to_model, for a run of a shard without a model tensor.
  void copy_main(const TileView& tile, const PieceRun& run, const ShardWork& shard);

 private:
  // fp32 values of a run: where they lie, or decoded into `buffer`.
  float* open(const kernels::StoredRun& stored, std::uint64_t count, std::vector<float>& buffer,
              bool read);

  Host& host_;
  std::string uid_;
  std::vector<float> main_, exp_avg_, exp_avg_sq_, grad_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_DEVICE_HOST_PIECES_H_
