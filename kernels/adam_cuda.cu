// The update on a CUDA device. Compiled with -fmad=false: a fused multiply-add is where the source
// says so. Formats are looked at once a group; the variant is a template argument.
#include "kernels/adam_cuda.h"

#include "kernels/part_cuda.cuh"

namespace millpond::kernels {
namespace {

// Without a branch but one, where nothing is out of the ordinary: true then, and all is stored.
// Bounds of QuickLane keep exp_avg_sq from vanishing, and NaN but for the main's own.
template <Variant kVariant, class ThisFormula, class ThisPart>
__device__ __forceinline__ bool update_quickly(const ThisFormula& formula, const Scalars& scalars,
                                               bool to_shape, const CudaShard& shard,
                                               const Share& share, const ThisPart& part) {
  auto v = part.decode(shard);
  if (to_shape) shape<kVariant>(scalars, v);
  // What is not a shard's is no reason for doubt.
  set_behind(part.base, share.count, 1.0F, v);
  const std::uint32_t doubt = apply<QuickLane>(formula, v);
  if (doubtful(doubt) || !no_nan(v.main)) return false;
  part.template store<true>(shard, share, v, v.main);
  return true;
}

template <Variant kVariant, class ThisPart>
__device__ __forceinline__ void update_with_care(const Scalars& scalars, bool to_shape,
                                                 const CudaShard& shard, const Share& share,
                                                 const ThisPart& part) {
  auto v = part.decode(shard);
  if (to_shape) shape<kVariant>(scalars, v);
  static_cast<void>(apply<Lane>(Formula<kVariant, Lane>(scalars), v));
  const bool plain = !ThisPart::kScaled && no_nan(v.main) && no_nan(v.exp_avg) &&
                     no_nan(v.exp_avg_sq) && none_vanishes(v.exp_avg_sq);
  if (plain) {
    part.template store<true>(shard, share, v, v.main);
  } else {
    part.template store<false>(shard, share, v, v.main);
  }
}

template <Variant kVariant, Moments kMoments>
__global__ void __launch_bounds__(kThreads, Shape<kMoments>::kBlocks)
    update_groups(const __grid_constant__ CudaTile tile, const Scalars* __restrict__ all_scalars) {
  each_part<kMoments>(tile, [&](const CudaShard& shard, const Share& share, auto&... parts) {
    const Scalars& scalars = all_scalars[shard.scalars];
    const bool to_shape = shapes(scalars);
    if constexpr (kHasQuick<kVariant> && Shape<kMoments>::kQuick) {
      const Formula<kVariant, QuickLane> formula(scalars);
      const auto update = [&](auto& part) {
        if (part.empty(share) ||
            update_quickly<kVariant>(formula, scalars, to_shape, shard, share, part)) {
          return;
        }
        part.load_segments();
        part.load_tensors(shard, share);
        update_with_care<kVariant>(scalars, to_shape, shard, share, part);
      };
      (update(parts), ...);
    } else {
      ((parts.empty(share) ? void()
                           : update_with_care<kVariant>(scalars, to_shape, shard, share, parts)),
       ...);
    }
  });
}

// The update's loads and stores of active shards with moments, formats included, and no arithmetic.
// The gradient goes where the parameter is, so that its load cannot be left out.
template <Moments kMoments>
__global__ void __launch_bounds__(kThreads, Shape<kMoments>::kBlocks)
    move_groups(const __grid_constant__ CudaTile tile) {
  each_part<kMoments>(tile, [&](const CudaShard& shard, const Share& share, auto&... parts) {
    const auto move = [&](auto& part) {
      auto v = part.decode(shard);
      part.template store<true>(shard, share, v, v.grad);
    };
    (move(parts), ...);
  });
}

__global__ void __launch_bounds__(kThreads) fill_main(const __grid_constant__ CudaTile tile) {
  each_place<Shape<Moments::kFp32>>(tile, [&](const Place& at, PieceFinder& finder) {
    const CudaPiece piece = finder.piece(at.group);
    const CudaShard shard = tile.shards[piece.shard];
    if (!shard.active) return;
    const Share share = share_of(piece, at.group);
    const bool given = shard.given_main != nullptr;
    const Element element = given ? Element::kFp32 : shard.model_element;
    const U8* const from = (given ? reinterpret_cast<const U8*>(shard.given_main) : shard.model) +
                           share.begin * item_bytes(element);
    const Stored<1> stored = load_elements<1>(from, element, at.base, share.count);
    store_elements<true>(main_at(tile, at.group).data, Element::kFp32, at.base, share.count,
                         decode_elements(stored, element));
  });
}

__global__ void __launch_bounds__(kThreads) write_model(const __grid_constant__ CudaTile tile) {
  each_place<Shape<Moments::kFp32>>(tile, [&](const Place& at, PieceFinder& finder) {
    const CudaPiece piece = finder.piece(at.group);
    const CudaShard shard = tile.shards[piece.shard];
    if (!shard.active) return;
    const Share share = share_of(piece, at.group);
    const Mine<1> main =
        decode_elements(load_segment<1>(main_at(tile, at.group), at.base), Element::kFp32);
    U8* const model = shard.model + share.begin * item_bytes(shard.model_element);
    if (no_nan(main)) {
      store_elements<true>(model, shard.model_element, at.base, share.count, main);
    } else {
      store_elements<false>(model, shard.model_element, at.base, share.count, main);
    }
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

// A grid for the tile's half groups, one a warp, of at most `blocks`.
unsigned grid_of(const CudaTile& tile, std::uint32_t blocks) {
  constexpr std::uint64_t kWarps = kThreads / kWarp;
  const std::uint64_t wanted = (tile.groups * std::uint64_t{2} + kWarps - 1) / kWarps;
  return static_cast<unsigned>(wanted < blocks ? wanted : blocks);
}

Moments moments_of(Storage exp_avg, Storage exp_avg_sq) {
  if (exp_avg != exp_avg_sq) return Moments::kAny;
  return exp_avg == Storage::kFp32   ? Moments::kFp32
         : exp_avg == Storage::kBf16 ? Moments::kBf16
                                     : Moments::kAny;
}
Moments moments_of(const CudaTile& tile) {
  return moments_of(tile.segments[1].storage, tile.segments[2].storage);
}

template <Variant kVariant, class Use>
cudaError_t with_moments(Moments moments, Use use) {
  switch (moments) {
    case Moments::kFp32:
      return use(update_groups<kVariant, Moments::kFp32>);
    case Moments::kBf16:
      return use(update_groups<kVariant, Moments::kBf16>);
    case Moments::kAny:
      break;
  }
  return use(update_groups<kVariant, Moments::kAny>);
}

// Calls use(kernel) with the variant's kernel.
template <class Use>
cudaError_t with_kernel(Variant variant, Moments moments, Use use) {
  switch (variant) {
    case Variant::kTorchCudaFused2:
      return with_moments<Variant::kTorchCudaFused2>(moments, use);
    case Variant::kTorchCudaForeach:
      return with_moments<Variant::kTorchCudaForeach>(moments, use);
    case Variant::kTorchCudaSingle:
      return with_moments<Variant::kTorchCudaSingle>(moments, use);
    case Variant::kTeFusedAdam:
      return with_moments<Variant::kTeFusedAdam>(moments, use);
    case Variant::kTeFusedAdamFast:
      return with_moments<Variant::kTeFusedAdamFast>(moments, use);
    case Variant::kTorchCudaFused1:
      return with_moments<Variant::kTorchCudaFused1>(moments, use);
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

int blocks_on_cuda(Variant variant, Storage moments, std::uint32_t* blocks) {
  return with_kernel(variant, moments_of(moments, moments),
                     [&](auto kernel) { return resident_blocks(kernel, blocks); });
}

int update_on_cuda(Variant variant, const CudaTile& tile, const Scalars* scalars,
                   std::uint32_t blocks, void* stream) {
  if (tile.groups == 0) return cudaSuccess;
  return with_kernel(variant, moments_of(tile), [&](auto kernel) {
    kernel<<<grid_of(tile, blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tile,
                                                                                      scalars);
    return cudaGetLastError();
  });
}

int move_on_cuda(const CudaTile& tile, std::uint32_t blocks, void* stream) {
  if (tile.groups == 0) return cudaSuccess;
  const auto move = [&](auto kernel) {
    kernel<<<grid_of(tile, blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tile);
    return cudaGetLastError();
  };
  switch (moments_of(tile)) {
    case Moments::kFp32:
      return move(move_groups<Moments::kFp32>);
    case Moments::kBf16:
      return move(move_groups<Moments::kBf16>);
    case Moments::kAny:
      break;
  }
  return move(move_groups<Moments::kAny>);
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
