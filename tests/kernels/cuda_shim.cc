// A flat C surface over kernels/adam_cuda.h for the Python test that compares with torch on a GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "kernels/adam_cuda.h"
#include "tests/kernels/adam_cuda_reference.h"

using millpond::kernels::CudaPiece;
using millpond::kernels::CudaShard;
using millpond::kernels::CudaTile;
using millpond::kernels::Element;
using millpond::kernels::Hyper;
using millpond::kernels::Scalars;
using millpond::kernels::Storage;
using millpond::kernels::Variant;

#define SHIM extern "C" __attribute__((visibility("default")))

struct CudaShimStep {
  double lr, beta1, beta2, eps, weight_decay;
  std::uint64_t step;
  float grad_scale;
  std::int32_t variant, decoupled, maximize, fresh;
};

SHIM int cuda_shim_variant(const char* name, std::uint64_t length) {
  Variant v{};
  return millpond::kernels::parse_variant(name, length, &v) &&
                 millpond::kernels::variant_supported(v, true, nullptr)
             ? static_cast<int>(v)
             : -1;
}

// What the device is told beside the tile: one shard, its pieces, its scalars.
struct Tables {
  Scalars scalars;
  CudaShard shard;
  CudaPiece pieces[256];
};

// One whole fp32 parameter cut into pieces of `piece_elements` (a multiple of 256). `workspace` is
// device memory of at least 64 KiB. Returns a cudaError_t.
SHIM int cuda_shim_update(const CudaShimStep* s, float* main, float* exp_avg, float* exp_avg_sq,
                          void* grad, int grad_element, void* model, std::uint64_t numel,
                          std::uint64_t piece_elements, unsigned char* workspace,
                          std::uint32_t blocks, void* stream) {
  const Hyper hyper{static_cast<Variant>(s->variant),
                    s->lr,
                    s->beta1,
                    s->beta2,
                    s->eps,
                    s->weight_decay,
                    s->step,
                    s->grad_scale,
                    s->decoupled != 0,
                    s->maximize != 0};
  const auto on = static_cast<cudaStream_t>(stream);
  static_assert(sizeof(Tables) <= 65'536);
  auto* const device = reinterpret_cast<Tables*>(workspace);
  static Tables tables;
  tables = {};
  tables.scalars = millpond::kernels::prepare(hyper);
  tables.shard.grad = static_cast<unsigned char*>(grad);
  tables.shard.model = static_cast<unsigned char*>(model);
  tables.shard.grad_element = static_cast<Element>(grad_element);
  tables.shard.model_element = Element::kBf16;
  tables.shard.active = true;
  CudaTile tile{};
  const std::uint64_t groups = millpond::kernels::round_up(numel, 256) / 256;
  float* const segments[] = {main, exp_avg, exp_avg_sq};
  for (int i = 0; i < 3; ++i) {
    tile.segments[i] = millpond::kernels::cuda_segment(
        reinterpret_cast<unsigned char*>(segments[i]), Storage::kFp32, groups * 256, 1 << 18);
  }
  tile.pieces = device->pieces;
  tile.shards = &device->shard;
  tile.groups = static_cast<std::uint32_t>(groups);
  tile.groups_per_block = (1 << 18) / 256;
  tile.moments_present = s->fresh == 0;
  for (std::uint64_t begin = 0; begin < numel; begin += piece_elements, ++tile.count) {
    if (tile.count == 256) return cudaErrorInvalidValue;
    tables.pieces[tile.count] = {begin, std::min(numel - begin, piece_elements), 0,
                                 static_cast<std::uint32_t>(begin / 256)};
  }
  int error = cudaMemcpyAsync(device, &tables, sizeof tables, cudaMemcpyDefault, on);
  if (error == 0) {
    error = millpond::kernels::complete_scalars_on_cuda(&device->scalars, 1, stream);
  }
  if (error == 0 && blocks == 0) {
    error = millpond::kernels::blocks_on_cuda(hyper.variant, millpond::kernels::Storage::kFp32,
                                              &blocks);
  }
  if (error != 0) return error;
  return millpond::kernels::update_on_cuda(hyper.variant, tile, &device->scalars, blocks, stream);
}

SHIM int cuda_shim_touch(float* main, float* exp_avg, float* exp_avg_sq, float* grad, void* model,
                         std::uint64_t numel, void* stream) {
  return millpond::test::touch_on_cuda(main, exp_avg, exp_avg_sq, grad,
                                       static_cast<unsigned short*>(model), numel, stream);
}
