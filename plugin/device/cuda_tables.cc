#include "plugin/device/cuda_tables.h"

#include "millpond/host.h"

namespace millpond::plugin {

std::vector<kernels::CudaPiece> cuda_pieces(const Plan& plan) {
  std::vector<kernels::CudaPiece> pieces;
  pieces.reserve(plan.pieces.size());
  for (const Piece& piece : plan.pieces) {
    pieces.push_back({piece.shard_begin, piece.count, piece.shard,
                      static_cast<std::uint32_t>(piece.tile_begin / kernels::kGroupElements)});
  }
  return pieces;
}

kernels::CudaTile cuda_tile(const Plan& plan, const Tile& tile, std::byte* memory,
                            const kernels::CudaPiece* pieces, const kernels::CudaShard* shards) {
  kernels::CudaTile result{};
  for (std::uint32_t s = 0; s < kSegments; ++s) {
    auto* const data = reinterpret_cast<unsigned char*>(memory + tile.memory_offset[s]);
    result.segments[s] =
        kernels::cuda_segment(tile.bytes[s] == 0 ? nullptr : data, plan.options.storage[s],
                              tile.elements, plan.options.block_elements);
  }
  result.pieces = pieces + tile.first_piece;
  result.shards = shards;
  result.count = tile.pieces;
  result.groups = static_cast<std::uint32_t>(tile.elements / kernels::kGroupElements);
  result.groups_per_block =
      static_cast<std::uint32_t>(plan.options.block_elements / kernels::kGroupElements);
  return result;
}

kernels::CudaShard cuda_shard(const ShardWork& shard, bool active) {
  kernels::CudaShard result{};
  result.grad = static_cast<const unsigned char*>(shard.grad);
  result.model = static_cast<unsigned char*>(shard.model);
  result.given_main = shard.given_main;
  result.scalars = shard.scalars;
  result.grad_element = shard.grad_element;
  result.model_element = shard.model_element;
  result.active = active;
  return result;
}

}  // namespace millpond::plugin
