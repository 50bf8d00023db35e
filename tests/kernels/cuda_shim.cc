// A flat C surface over kernels/adam_cuda.h for the Python test that compares with torch on a GPU.
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/adam_cuda.h"
#include "tests/kernels/adam_cuda_reference.h"

using millpond::kernels::CudaPiece;
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
  const Scalars scalars = millpond::kernels::prepare(hyper);
  static CudaPiece pieces[256];
  std::uint32_t count = 0;
  std::uint64_t groups = 0;
  const auto bytes = [](float* p) { return reinterpret_cast<unsigned char*>(p); };
  const auto grad_bytes = millpond::kernels::item_bytes(static_cast<Element>(grad_element));
  for (std::uint64_t begin = 0; begin < numel; begin += piece_elements, ++count) {
    if (count == 256) return cudaErrorInvalidValue;
    CudaPiece& piece = pieces[count];
    piece = CudaPiece{};
    piece.run.main = {bytes(main + begin), nullptr, Storage::kFp32};
    piece.run.exp_avg = {bytes(exp_avg + begin), nullptr, Storage::kFp32};
    piece.run.exp_avg_sq = {bytes(exp_avg_sq + begin), nullptr, Storage::kFp32};
    piece.run.grad = static_cast<unsigned char*>(grad) + grad_bytes * begin;
    piece.run.model = model == nullptr ? nullptr : static_cast<unsigned char*>(model) + 2 * begin;
    piece.run.count = numel - begin < piece_elements ? numel - begin : piece_elements;
    piece.run.body = piece.run.count;
    piece.run.grad_element = static_cast<Element>(grad_element);
    piece.run.model_element = Element::kBf16;
    piece.run.moments_present = s->fresh == 0;
    piece.first_group = groups;
    groups += millpond::kernels::groups_of(piece.run.count);
  }
  auto* device_scalars = reinterpret_cast<Scalars*>(workspace);
  auto* device_pieces = reinterpret_cast<CudaPiece*>(workspace + 512);
  static_assert(sizeof(Scalars) <= 512 && sizeof pieces <= 65'536 - 512);
  int error = cudaMemcpyAsync(device_scalars, &scalars, sizeof scalars, cudaMemcpyDefault, on);
  if (error == 0) {
    error =
        cudaMemcpyAsync(device_pieces, pieces, count * sizeof(CudaPiece), cudaMemcpyDefault, on);
  }
  if (error == 0) error = millpond::kernels::complete_scalars_on_cuda(device_scalars, 1, stream);
  if (error != 0) return error;
  return millpond::kernels::update_on_cuda(hyper.variant, device_pieces, count, groups, false,
                                           device_scalars, blocks, stream);
}

SHIM int cuda_shim_touch(float* main, float* exp_avg, float* exp_avg_sq, float* grad, void* model,
                         std::uint64_t numel, void* stream) {
  return millpond::test::touch_on_cuda(main, exp_avg, exp_avg_sq, grad,
                                       static_cast<unsigned short*>(model), numel, stream);
}
