// The update on a CUDA device. Compiled with -fmad=false: a fused multiply-add is where the source
// says so. Formats are looked at once a group; the variant is a template argument.
#include "kernels/adam_cuda.h"

#include "kernels/group_cuda.cuh"

namespace millpond::kernels {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kWarp = 32;

template <Variant kVariant>
struct Formula;

__device__ __forceinline__ TorchCpuScalars<Lane> python_scalars(const Scalars& s) {
  return {Lane(s.one_minus_beta1),
          Lane(s.one_minus_beta2),
          Lane(s.beta2),
          Lane(s.decay),
          Lane(s.step_size),
          Lane(s.bias2_sqrt),
          Lane(s.eps),
          fabsf(s.one_minus_beta1) < 0.5F};
}

template <>
struct Formula<Variant::kTorchCudaForeach> {
  TorchCpuScalars<Lane> c;
  __device__ explicit Formula(const Scalars& s) : c(python_scalars(s)) {}
  __device__ void operator()(State<Lane>& state, Lane grad) const {
    torch_cuda_foreach_adam<false>(state, grad, c);
  }
};
template <>
struct Formula<Variant::kTorchCudaSingle> {
  TorchCpuScalars<Lane> c;
  __device__ explicit Formula(const Scalars& s) : c(python_scalars(s)) {}
  __device__ void operator()(State<Lane>& state, Lane grad) const {
    torch_cuda_foreach_adam<true>(state, grad, c);
  }
};
template <>
struct Formula<Variant::kTorchCudaFused2> {
  TorchCudaFusedScalars<Lane> c;
  __device__ explicit Formula(const Scalars& s)
      : c{Lane(s.beta1),
          Lane(s.beta2),
          Lane(s.lr) * Lane(s.weight_decay),
          Lane(s.step_size),
          Lane(s.bias2_sqrt),
          Lane(s.eps),
          s.decoupled && s.weight_decay != 0.0F} {}
  __device__ void operator()(State<Lane>& state, Lane grad) const {
    torch_cuda_fused_adam(state, grad, c);
  }
};
template <>
struct Formula<Variant::kTeFusedAdam> {
  TeScalars<Lane> c;
  __device__ explicit Formula(const Scalars& s)
      : c{Lane(s.lr),
          Lane(s.beta1),
          Lane(s.beta2),
          Lane(s.one_minus_beta1),
          Lane(s.one_minus_beta2),
          Lane(s.bias1),
          Lane(s.bias2),
          Lane(s.eps),
          Lane(s.weight_decay)} {}
  __device__ void operator()(State<Lane>& state, Lane grad) const { te_adam(state, grad, c); }
};

// What comes before the formula: scaling, direction, weight decay as part of the gradient (L2).
__device__ __forceinline__ Lane shaped(Lane grad, Lane main, const Scalars& s) {
  if (s.grad_scale != 1.0F) grad = grad / Lane(s.grad_scale);
  if (s.maximize) grad = -grad;
  if (!s.decoupled && s.weight_decay != 0.0F) grad = fma(main, Lane(s.weight_decay), grad);
  return grad;
}

// The piece that has this group: the last whose first_group is not beyond it.
__device__ __forceinline__ std::uint32_t piece_of(const CudaPiece* pieces, std::uint32_t count,
                                                  std::uint64_t group) {
  std::uint32_t low = 0, high = count;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (pieces[middle].first_group <= group) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// kQuads 2: a warp has whole groups; 1: halves, for pieces without scaled formats.
template <Variant kVariant, int kQuads>
__global__ void __launch_bounds__(kThreads, kQuads == 1 ? 4 : 2)
    update_groups(const CudaPiece* __restrict__ pieces, std::uint32_t count, std::uint64_t groups,
                  const Scalars* __restrict__ all_scalars) {
  constexpr std::uint64_t kParts = 2 / kQuads;
  const std::uint64_t warps = static_cast<std::uint64_t>(gridDim.x) * (kThreads / kWarp);
  for (std::uint64_t part = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp;
       part < groups * kParts; part += warps) {
    const std::uint64_t g = part / kParts;
    const int base = static_cast<int>(part % kParts * 128 + threadIdx.x % kWarp * 4);
    const CudaPiece& piece = pieces[piece_of(pieces, count, g)];
    const FlatRun& run = piece.run;
    const Scalars& scalars = all_scalars[piece.scalars];
    const std::uint64_t group = g - piece.first_group;
    const std::uint64_t begin = group * kGroupElements;
    const int n = static_cast<int>(min(run.count - begin, kGroupElements));
    Mine<kQuads> main, exp_avg, exp_avg_sq, grad;
    load_segment(run.main, group, base, n, main);
    load_element(run.grad + begin * item_bytes(run.grad_element), run.grad_element, base, n, grad);
    if (run.moments_present) {
      load_segment(run.exp_avg, group, base, n, exp_avg);
      load_segment(run.exp_avg_sq, group, base, n, exp_avg_sq);
    } else {
#pragma unroll
      for (int k = 0; k < Mine<kQuads>::kCount; ++k) exp_avg.x[k] = exp_avg_sq.x[k] = Lane(0.0F);
    }
    const Formula<kVariant> formula(scalars);
#pragma unroll
    for (int k = 0; k < Mine<kQuads>::kCount; ++k) {
      State<Lane> state{main.x[k], exp_avg.x[k], exp_avg_sq.x[k]};
      formula(state, shaped(grad.x[k], state.main, scalars));
      const bool inside = place_of(base, k) < n;
      main.x[k] = inside ? state.main : Lane(0.0F);
      exp_avg.x[k] = inside ? state.exp_avg : Lane(0.0F);
      exp_avg_sq.x[k] = inside ? state.exp_avg_sq : Lane(0.0F);
    }
    store_segment(run.main, group, base, n, main, false);
    store_segment(run.exp_avg, group, base, n, exp_avg, false);
    store_segment(run.exp_avg_sq, group, base, n, exp_avg_sq, true);
    if (run.model != nullptr) {
      store_element(run.model + begin * item_bytes(run.model_element), run.model_element, base, n,
                    main);
    }
  }
}

__global__ void complete_scalars(Scalars* scalars, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Scalars& s = scalars[i];
  if (s.variant != Variant::kTorchCudaFused2) return;
  const float step = static_cast<float>(s.step);
  s.bias1 = 1.0F - powf(s.beta1, step);
  s.bias2 = 1.0F - powf(s.beta2, step);
  s.bias2_sqrt = __fsqrt_rn(s.bias2);
  s.step_size = __fdiv_rn(s.lr, s.bias1);
}

template <Variant kVariant, int kQuads>
cudaError_t launch_parts(const CudaPiece* pieces, std::uint32_t count, std::uint64_t groups,
                         const Scalars* scalars, std::uint32_t blocks, cudaStream_t stream) {
  constexpr std::uint64_t kWarps = kThreads / kWarp;
  const std::uint64_t wanted = (groups * (2 / kQuads) + kWarps - 1) / kWarps;
  std::uint64_t most = blocks;
  if (most == 0) {
    int device = 0, processors = 0, resident = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess) return error;
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return error;
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &resident, update_groups<kVariant, kQuads>, kThreads, 0);
    if (error != cudaSuccess) return error;
    most = static_cast<std::uint64_t>(processors) * static_cast<std::uint64_t>(resident);
  }
  const auto grid = static_cast<unsigned>(wanted < most ? wanted : most);
  update_groups<kVariant, kQuads><<<grid, kThreads, 0, stream>>>(pieces, count, groups, scalars);
  return cudaGetLastError();
}

template <Variant kVariant>
cudaError_t launch(const CudaPiece* pieces, std::uint32_t count, std::uint64_t groups, bool scaled,
                   const Scalars* scalars, std::uint32_t blocks, cudaStream_t stream) {
  return scaled ? launch_parts<kVariant, 2>(pieces, count, groups, scalars, blocks, stream)
                : launch_parts<kVariant, 1>(pieces, count, groups, scalars, blocks, stream);
}

}  // namespace

int complete_scalars_on_cuda(Scalars* scalars, std::uint32_t count, void* stream) {
  if (count == 0) return cudaSuccess;
  complete_scalars<<<(count + kThreads - 1) / kThreads, kThreads, 0,
                     static_cast<cudaStream_t>(stream)>>>(scalars, count);
  return cudaGetLastError();
}

int update_on_cuda(Variant variant, const CudaPiece* pieces, std::uint32_t count,
                   std::uint64_t groups, bool scaled, const Scalars* scalars, std::uint32_t blocks,
                   void* stream) {
  if (groups == 0) return cudaSuccess;
  const auto on = static_cast<cudaStream_t>(stream);
  switch (variant) {
    case Variant::kTorchCudaFused2:
      return launch<Variant::kTorchCudaFused2>(pieces, count, groups, scaled, scalars, blocks, on);
    case Variant::kTorchCudaForeach:
      return launch<Variant::kTorchCudaForeach>(pieces, count, groups, scaled, scalars, blocks, on);
    case Variant::kTorchCudaSingle:
      return launch<Variant::kTorchCudaSingle>(pieces, count, groups, scaled, scalars, blocks, on);
    case Variant::kTeFusedAdam:
      return launch<Variant::kTeFusedAdam>(pieces, count, groups, scaled, scalars, blocks, on);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace millpond::kernels
