// What a launch on a CUDA device is told of tiles and shards. Pure: no CUDA, no device; addresses
// only travel through.
#ifndef MILLPOND_PLUGIN_DEVICE_CUDA_TABLES_H_
#define MILLPOND_PLUGIN_DEVICE_CUDA_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/adam_cuda.h"
#include "plugin/device/work.h"
#include "plugin/layout/plan.h"

namespace millpond::plugin {

// By the plan's pieces, one for one: a tile's are those from Tile::first_piece on.
std::vector<kernels::CudaPiece> cuda_pieces(const Plan& plan);

// The tile as it lies at `memory`. `pieces` is where cuda_pieces() is for the device.
kernels::CudaTile cuda_tile(const Plan& plan, const Tile& tile, std::byte* memory,
                            const kernels::CudaPiece* pieces, const kernels::CudaShard* shards);

kernels::CudaShard cuda_shard(const ShardWork& shard, bool active);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_DEVICE_CUDA_TABLES_H_
