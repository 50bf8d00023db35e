#include "plugin/device/host_pieces.h"

#include <algorithm>
#include <utility>

#include "plugin/device/stored_run.h"

namespace millpond::plugin {
namespace {

std::byte* element_address(void* base, kernels::Element element, std::uint64_t index) {
  return static_cast<std::byte*>(base) + index * kernels::item_bytes(element);
}
const std::byte* element_address(const void* base, kernels::Element element, std::uint64_t index) {
  return static_cast<const std::byte*>(base) + index * kernels::item_bytes(element);
}

}  // namespace

HostPieces::HostPieces(Host& host, std::string uid, bool update)
    : host_(host), uid_(std::move(uid)), main_(kPieceElements) {
  if (!update) return;
  exp_avg_.resize(kPieceElements);
  exp_avg_sq_.resize(kPieceElements);
  grad_.resize(kPieceElements);
}

float* HostPieces::open(const kernels::StoredRun& stored, std::uint64_t count,
                        std::vector<float>& buffer, bool read) {
  if (stored.storage == kernels::Storage::kFp32) {
    float* const in_place = static_cast<float*>(static_cast<void*>(stored.block)) + stored.first;
    if (!read) std::fill_n(in_place, count, 0.0F);
    return in_place;
  }
  if (read) {
    kernels::decode(stored, buffer.data(), count);
  } else {
    std::fill_n(buffer.data(), count, 0.0F);
  }
  return buffer.data();
}

void HostPieces::update(const TileView& tile, const PieceRun& run, const ShardWork& shard,
                        const kernels::Hyper& hyper) {
  const kernels::StoredRun main = stored_run(tile, MILLPOND_SEGMENT_MAIN, run.tile_begin);
  const kernels::StoredRun exp_avg = stored_run(tile, MILLPOND_SEGMENT_EXP_AVG, run.tile_begin);
  const kernels::StoredRun exp_avg_sq =
      stored_run(tile, MILLPOND_SEGMENT_EXP_AVG_SQ, run.tile_begin);
  std::byte* const model = shard.model == nullptr
                               ? nullptr
                               : element_address(shard.model, shard.model_element, run.shard_begin);
  millpond_update_piece piece{};
  piece.header = {sizeof piece, MILLPOND_TYPE_UPDATE_PIECE};
  piece.uid = {uid_.data(), uid_.size()};
  piece.shard_id = shard.id;
  piece.group_id = shard.group_id;
  piece.begin = run.shard_begin;
  piece.count = run.count;
  piece.step = hyper.step;
  piece.main = shard.moments_only ? static_cast<float*>(static_cast<void*>(model))
                                  : open(main, run.count, main_, true);
  piece.exp_avg = open(exp_avg, run.count, exp_avg_, tile.moments_present);
  piece.exp_avg_sq = open(exp_avg_sq, run.count, exp_avg_sq_, tile.moments_present);
  // A copy also where it is fp32 already: the host's Adam may scale what it is given in place.
  kernels::widen(element_address(shard.grad, shard.grad_element, run.shard_begin),
                 shard.grad_element, grad_.data(), run.count);
  piece.grad = grad_.data();
  piece.grad_scale = hyper.grad_scale;
  host_.update(piece);

  if (piece.exp_avg == exp_avg_.data()) kernels::encode(piece.exp_avg, exp_avg, run.count, false);
  if (piece.exp_avg_sq == exp_avg_sq_.data()) {
    kernels::encode(piece.exp_avg_sq, exp_avg_sq, run.count, true);
  }
  if (shard.moments_only) return;
  if (piece.main == main_.data()) kernels::encode(piece.main, main, run.count, false);
  if (model != nullptr) kernels::narrow(piece.main, model, shard.model_element, run.count);
}

void HostPieces::copy_main(const TileView& tile, const PieceRun& run, const ShardWork& shard) {
  const kernels::StoredRun main = stored_run(tile, MILLPOND_SEGMENT_MAIN, run.tile_begin);
  host_.copy_main_to_model(uid_, shard.id, run.shard_begin, open(main, run.count, main_, true),
                           run.count);
}

}  // namespace millpond::plugin
