// The update on a CUDA device. Compiled with -fmad=false: a fused multiply-add is where the source
// says so. Formats are looked at once a group; the variant is a template argument.
#include "kernels/adam_cuda.h"

#include "kernels/formulas_cuda.cuh"
#include "kernels/group_cuda.cuh"

namespace millpond::kernels {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kWarp = 32;

// The piece that has this group: the last whose first_group is not beyond it. All lanes of the warp
// look for it together, each at one of 32 pieces: three rounds for 10,000.
__device__ __forceinline__ const CudaPiece& piece_of(const CudaTile& tile, std::uint32_t group) {
  const std::uint32_t lane = threadIdx.x % kWarp;
  std::uint32_t low = 0, left = tile.count;
  while (left > 1) {
    const std::uint32_t step = (left + kWarp - 1) / kWarp;
    const std::uint32_t mine = lane * step;
    const bool before = mine < left && tile.pieces[low + mine].first_group <= group;
    const std::uint32_t part = __popc(__ballot_sync(0xffffffffU, before)) - 1;
    low += part * step;
    left = min(step, left - part * step);
  }
  return tile.pieces[low];
}

// A group of a tile, and what of it a lane has.
struct Place {
  std::uint32_t group;  // in the tile
  int base;             // of the lane, in the group
  int count;            // elements of the shard in the group
  std::uint64_t begin;  // first element of the group, in the shard
};

template <int kQuads>
__device__ __forceinline__ Place place_in(const CudaPiece& piece, std::uint32_t group,
                                          unsigned part) {
  const std::uint64_t begin = (group - piece.first_group) * kGroupElements;
  return {group, static_cast<int>(part * 128 + threadIdx.x % kWarp * 4),
          static_cast<int>(min(piece.count - begin, kGroupElements)), piece.shard_begin + begin};
}

// The group's place in a segment. Without scales a segment has no holes between its blocks.
template <int kQuads>
__device__ __forceinline__ FlatSegment segment_at(const CudaTile& tile, int which,
                                                  std::uint32_t group) {
  const CudaSegment& s = tile.segments[which];
  const std::uint64_t item = item_bytes(s.storage);
  if constexpr (kQuads == 1) {
    return {s.data + group * kGroupElements * item, nullptr, s.storage};
  }
  const std::uint32_t block = group / tile.groups_per_block;
  const std::uint32_t inside = group - block * tile.groups_per_block;
  U8* const start = s.data + block * s.block_bytes;
  U8* const scales = start + (block == s.last_block ? s.last_scales : s.scales) + inside * 4;
  return {start + inside * kGroupElements * item, is_scaled(s.storage) ? scales : nullptr,
          s.storage};
}

// Calls body(place, shard) for every part of the groups that are this warp's. A piece is looked for
// once a group, which is what a tile of small shards spends its time on.
template <int kQuads, class Body>
__device__ __forceinline__ void each_group(const CudaTile& tile, Body body) {
  constexpr unsigned kParts = 2 / kQuads;
  const std::uint32_t warps = gridDim.x * (kThreads / kWarp);
  for (std::uint32_t group = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp;
       group < tile.groups; group += warps) {
    const CudaPiece& piece = piece_of(tile, group);
    const CudaShard& shard = tile.shards[piece.shard];
#pragma unroll 1
    for (unsigned part = 0; part < kParts; ++part) {
      body(place_in<kQuads>(piece, group, part), shard);
    }
  }
}

template <int kQuads>
__device__ __forceinline__ void set_zero(Mine<kQuads>& values) {
#pragma unroll
  for (int k = 0; k < Mine<kQuads>::kCount; ++k) values.x[k] = Lane(0.0F);
}

// kQuads 2: a warp has whole groups; 1: halves, for tiles without scaled formats.
template <Variant kVariant, int kQuads>
__global__ void __launch_bounds__(kThreads, kQuads == 1 ? 4 : 2)
    update_groups(const __grid_constant__ CudaTile tile, const Scalars* __restrict__ all_scalars) {
  each_group<kQuads>(tile, [&](const Place& at, const CudaShard& shard) {
    const FlatSegment stored_avg = segment_at<kQuads>(tile, 1, at.group);
    const FlatSegment stored_sq = segment_at<kQuads>(tile, 2, at.group);
    Mine<kQuads> main, exp_avg, exp_avg_sq, grad;
    if (!shard.active) {
      if (tile.moments_present) return;
      set_zero(exp_avg);
      store_segment(stored_avg, 0, at.base, kGroupElements, exp_avg, false);
      store_segment(stored_sq, 0, at.base, kGroupElements, exp_avg, true);
      return;
    }
    U8* const model =
        shard.model == nullptr ? nullptr : shard.model + at.begin * item_bytes(shard.model_element);
    // Without a main segment the parameter is its own main.
    const bool own_main = tile.segments[0].data == nullptr;
    const FlatSegment stored_main = own_main ? FlatSegment{model, nullptr, Storage::kFp32}
                                             : segment_at<kQuads>(tile, 0, at.group);
    const Scalars& scalars = all_scalars[shard.scalars];
    load_segment(stored_main, 0, at.base, at.count, main);
    load_element(shard.grad + at.begin * item_bytes(shard.grad_element), shard.grad_element,
                 at.base, at.count, grad);
    if (tile.moments_present) {
      load_segment(stored_avg, 0, at.base, at.count, exp_avg);
      load_segment(stored_sq, 0, at.base, at.count, exp_avg_sq);
    } else {
      set_zero(exp_avg);
      set_zero(exp_avg_sq);
    }
    const Formula<kVariant> formula(scalars);
#pragma unroll
    for (int k = 0; k < Mine<kQuads>::kCount; ++k) {
      State<Lane> state{main.x[k], exp_avg.x[k], exp_avg_sq.x[k]};
      formula(state, shaped<kVariant>(grad.x[k], state.main, scalars));
      const bool inside = place_of(at.base, k) < at.count;
      main.x[k] = inside ? state.main : Lane(0.0F);
      exp_avg.x[k] = inside ? state.exp_avg : Lane(0.0F);
      exp_avg_sq.x[k] = inside ? state.exp_avg_sq : Lane(0.0F);
    }
    store_segment(stored_main, 0, at.base, at.count, main, false);
    store_segment(stored_avg, 0, at.base, at.count, exp_avg, false);
    store_segment(stored_sq, 0, at.base, at.count, exp_avg_sq, true);
    if (model != nullptr && !own_main) {
      store_element(model, shard.model_element, at.base, at.count, main);
    }
  });
}

__global__ void __launch_bounds__(kThreads) fill_main(const __grid_constant__ CudaTile tile) {
  each_group<1>(tile, [&](const Place& at, const CudaShard& shard) {
    if (!shard.active) return;
    Mine<1> main;
    if (shard.given_main != nullptr) {
      load_element(reinterpret_cast<const U8*>(shard.given_main + at.begin), Element::kFp32,
                   at.base, at.count, main);
    } else {
      load_element(shard.model + at.begin * item_bytes(shard.model_element), shard.model_element,
                   at.base, at.count, main);
    }
    store_segment(segment_at<1>(tile, 0, at.group), 0, at.base, at.count, main, false);
  });
}

__global__ void __launch_bounds__(kThreads) write_model(const __grid_constant__ CudaTile tile) {
  each_group<1>(tile, [&](const Place& at, const CudaShard& shard) {
    if (!shard.active) return;
    Mine<1> main;
    load_segment(segment_at<1>(tile, 0, at.group), 0, at.base, at.count, main);
    store_element(shard.model + at.begin * item_bytes(shard.model_element), shard.model_element,
                  at.base, at.count, main);
  });
}

// The update's loads and stores of active shards with moments, and no arithmetic.
template <int kQuads>
__global__ void __launch_bounds__(kThreads, kQuads == 1 ? 4 : 2)
    move_groups(const __grid_constant__ CudaTile tile) {
  each_group<kQuads>(tile, [&](const Place& at, const CudaShard& shard) {
    U8* const model = shard.model + at.begin * item_bytes(shard.model_element);
    const bool own_main = tile.segments[0].data == nullptr;
    const FlatSegment stored_main = own_main ? FlatSegment{model, nullptr, Storage::kFp32}
                                             : segment_at<kQuads>(tile, 0, at.group);
    Mine<kQuads> values[3], grad;
    load_segment(stored_main, 0, at.base, at.count, values[0]);
    load_element(shard.grad + at.begin * item_bytes(shard.grad_element), shard.grad_element,
                 at.base, at.count, grad);
    for (int s = 1; s < 3; ++s) {
      load_segment(segment_at<kQuads>(tile, s, at.group), 0, at.base, at.count, values[s]);
    }
    store_segment(stored_main, 0, at.base, at.count, values[0], false);
    for (int s = 1; s < 3; ++s) {
      store_segment(segment_at<kQuads>(tile, s, at.group), 0, at.base, at.count, values[s], s == 2);
    }
    // The gradient goes where the parameter is, so that its load cannot be left out.
    if (!own_main) store_element(model, shard.model_element, at.base, at.count, grad);
  });
}

__global__ void complete_scalars(Scalars* scalars, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Scalars& s = scalars[i];
  if (s.variant == Variant::kTorchCudaFused1) {
    const auto step = static_cast<double>(static_cast<float>(s.step));
    s.bias1 = static_cast<float>(1.0 - pow(s.beta1_d, step));
    s.bias2_sqrt = static_cast<float>(sqrt(1.0 - pow(s.beta2_d, step)));
    s.step_size = static_cast<float>(s.lr_d / static_cast<double>(s.bias1));
    return;
  }
  if (s.variant != Variant::kTorchCudaFused2) return;
  const float step = static_cast<float>(s.step);
  s.bias1 = 1.0F - powf(s.beta1, step);
  s.bias2 = 1.0F - powf(s.beta2, step);
  s.bias2_sqrt = __fsqrt_rn(s.bias2);
  s.step_size = __fdiv_rn(s.lr, s.bias1);
}

// As many blocks as the device runs of the kernel at once.
template <class Kernel>
cudaError_t resident_blocks(Kernel kernel, std::uint32_t* blocks) {
  int device = 0, processors = 0, resident = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, 0);
  *blocks = static_cast<std::uint32_t>(processors * resident);
  return error;
}

// A grid for the tile's groups, one a warp, of at most `blocks`.
unsigned grid_of(const CudaTile& tile, std::uint32_t blocks) {
  constexpr std::uint64_t kWarps = kThreads / kWarp;
  const std::uint64_t wanted = (tile.groups + kWarps - 1) / kWarps;
  return static_cast<unsigned>(wanted < blocks ? wanted : blocks);
}

bool any_scaled(const CudaTile& tile) {
  return is_scaled(tile.segments[1].storage) || is_scaled(tile.segments[2].storage);
}

// Calls use(kernel) with the variant's kernel.
template <class Use>
cudaError_t with_kernel(Variant variant, bool scaled, Use use) {
  switch (variant) {
    case Variant::kTorchCudaFused2:
      return scaled ? use(update_groups<Variant::kTorchCudaFused2, 2>)
                    : use(update_groups<Variant::kTorchCudaFused2, 1>);
    case Variant::kTorchCudaForeach:
      return scaled ? use(update_groups<Variant::kTorchCudaForeach, 2>)
                    : use(update_groups<Variant::kTorchCudaForeach, 1>);
    case Variant::kTorchCudaSingle:
      return scaled ? use(update_groups<Variant::kTorchCudaSingle, 2>)
                    : use(update_groups<Variant::kTorchCudaSingle, 1>);
    case Variant::kTeFusedAdam:
      return scaled ? use(update_groups<Variant::kTeFusedAdam, 2>)
                    : use(update_groups<Variant::kTeFusedAdam, 1>);
    case Variant::kTeFusedAdamFast:
      return scaled ? use(update_groups<Variant::kTeFusedAdamFast, 2>)
                    : use(update_groups<Variant::kTeFusedAdamFast, 1>);
    case Variant::kTorchCudaFused1:
      return scaled ? use(update_groups<Variant::kTorchCudaFused1, 2>)
                    : use(update_groups<Variant::kTorchCudaFused1, 1>);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

int complete_scalars_on_cuda(Scalars* scalars, std::uint32_t count, void* stream) {
  if (count == 0) return cudaSuccess;
  complete_scalars<<<(count + kThreads - 1) / kThreads, kThreads, 0,
                     static_cast<cudaStream_t>(stream)>>>(scalars, count);
  return cudaGetLastError();
}

int blocks_on_cuda(Variant variant, bool scaled, std::uint32_t* blocks) {
  return with_kernel(variant, scaled, [&](auto kernel) { return resident_blocks(kernel, blocks); });
}

int update_on_cuda(Variant variant, const CudaTile& tile, const Scalars* scalars,
                   std::uint32_t blocks, void* stream) {
  if (tile.groups == 0) return cudaSuccess;
  const bool scaled = any_scaled(tile);
  return with_kernel(variant, scaled, [&](auto kernel) {
    kernel<<<grid_of(tile, blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tile,
                                                                                      scalars);
    return cudaGetLastError();
  });
}

int move_on_cuda(const CudaTile& tile, std::uint32_t blocks, void* stream) {
  if (tile.groups == 0) return cudaSuccess;
  const bool scaled = any_scaled(tile);
  const auto on = static_cast<cudaStream_t>(stream);
  if (scaled) {
    move_groups<2><<<grid_of(tile, blocks), kThreads, 0, on>>>(tile);
  } else {
    move_groups<1><<<grid_of(tile, blocks), kThreads, 0, on>>>(tile);
  }
  return cudaGetLastError();
}

int fill_main_on_cuda(const CudaTile& tile, std::uint32_t blocks, void* stream) {
  if (tile.groups == 0) return cudaSuccess;
  fill_main<<<grid_of(tile, blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tile);
  return cudaGetLastError();
}

int write_model_on_cuda(const CudaTile& tile, std::uint32_t blocks, void* stream) {
  if (tile.groups == 0) return cudaSuccess;
  write_model<<<grid_of(tile, blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tile);
  return cudaGetLastError();
}

}  // namespace millpond::kernels
