// The named arithmetics: names, where they run, what is proven, and their scalars.
#include <cmath>
#include <cstring>

#include "kernels/flat_run.h"

namespace millpond::kernels {
namespace {

enum class Family : std::uint8_t { kHost, kTorch, kTransformerEngine };

struct Entry {
  Variant variant;
  const char* name;
  Family family;
  bool cuda;
};
constexpr Entry kEntries[] = {
    {Variant::kHost, "host/1", Family::kHost, false},
    {Variant::kTorchCpuFused, "torch_cpu_fused/1", Family::kTorch, false},
    {Variant::kTorchCpuForeach, "torch_cpu_foreach/1", Family::kTorch, false},
    {Variant::kTorchCpuForeachMkl, "torch_cpu_foreach_mkl/1", Family::kTorch, false},
    {Variant::kTeFusedAdam, "te_fused_adam/1", Family::kTransformerEngine, true},
    {Variant::kTorchCudaFused1, "torch_cuda_fused/1", Family::kTorch, true},
    {Variant::kTorchCudaFused2, "torch_cuda_fused/2", Family::kTorch, true},
    {Variant::kTorchCudaForeach, "torch_cuda_foreach/1", Family::kTorch, true},
    {Variant::kTorchCudaSingle, "torch_cuda_single/1", Family::kTorch, true},
    {Variant::kTeFusedAdamFast, "te_fused_adam_fast/1", Family::kTransformerEngine, true}};

const Entry& entry(Variant v) {
  for (const Entry& e : kEntries) {
    if (e.variant == v) return e;
  }
  return kEntries[0];
}

bool refuse(const char** why_not, const char* sentence) {
  if (why_not != nullptr) *why_not = sentence;
  return false;
}

bool cuda_variant_supported(Variant v, const char** why_not) {
#if defined(MILLPOND_CUDA_KERNELS)
  switch (v) {
    case Variant::kTorchCudaFused2:
    case Variant::kTorchCudaForeach:
    case Variant::kTorchCudaSingle:
    case Variant::kTeFusedAdam:
    case Variant::kTeFusedAdamFast:
    case Variant::kTorchCudaFused1:
      return true;
    default:
      return refuse(why_not, "the arithmetic is that of a CPU kernel: it runs on CPU stores only");
  }
#else
  (void)v;
  return refuse(why_not, "this build has no CUDA kernels: build it where nvcc is");
#endif
}

void prepare_torch(const Hyper& h, Scalars* s) {
  const auto step = static_cast<double>(h.step);
  const double bias1 = 1 - std::pow(h.beta1, step);
  const double bias2 = 1 - std::pow(h.beta2, step);
  // The fused kernel takes the square root; Python's optimizers raise to the power 0.5.
  const double bias2_sqrt =
      h.variant == Variant::kTorchCpuFused ? std::sqrt(bias2) : std::pow(bias2, 0.5);
  s->decay = h.decoupled ? static_cast<float>(1 - h.lr * h.weight_decay) : 1.0F;
  s->one_minus_beta1 = static_cast<float>(1 - h.beta1);
  s->one_minus_beta2 = static_cast<float>(1 - h.beta2);
  s->step_size = static_cast<float>(-(h.lr / bias1));
  s->bias2_sqrt =
      static_cast<float>(h.variant == Variant::kTorchCudaSingle ? 1 / bias2_sqrt : bias2_sqrt);
  s->bias1 = static_cast<float>(bias1);
  s->bias2 = static_cast<float>(bias2);
}

void prepare_te(const Hyper& h, Scalars* s) {
  const auto step = static_cast<double>(h.step);
  s->one_minus_beta1 = 1.0F - s->beta1;
  s->one_minus_beta2 = 1.0F - s->beta2;
  // The powers of fp32 bases are taken in double.
  s->bias1 = static_cast<float>(1 - std::pow(static_cast<double>(s->beta1), step));
  s->bias2 = static_cast<float>(1 - std::pow(static_cast<double>(s->beta2), step));
}

}  // namespace

const char* variant_name(Variant v) { return entry(v).name; }

bool parse_variant(const char* name, std::uint64_t length, Variant* variant) {
  for (const Entry& e : kEntries) {
    if (std::strlen(e.name) == length && std::memcmp(e.name, name, length) == 0) {
      *variant = e.variant;
      return true;
    }
  }
  return false;
}

bool variant_supported(Variant v, bool cuda, const char** why_not) {
  if (v == Variant::kHost) return true;
  if (cuda) return cuda_variant_supported(v, why_not);
  switch (v) {
    case Variant::kTorchCpuFused:
    case Variant::kTorchCpuForeach:
    case Variant::kTeFusedAdam:
      return true;
    case Variant::kTorchCpuForeachMkl:
      if (kernel_table(Processor::kAvx512) != nullptr) return true;
      return refuse(why_not,
                    "MKL's AVX-512 square root needs a processor with AVX-512; elsewhere MKL "
                    "rounds correctly, which is torch_cpu_foreach/1");
    default:
      return refuse(why_not,
                    "the arithmetic is that of a CUDA kernel: it runs on CUDA stores only");
  }
}

bool hyper_proven(const Hyper& h, const char** why_not) {
  const bool l2 = !h.decoupled && h.weight_decay != 0;
  if (entry(h.variant).family == Family::kTransformerEngine && (l2 || h.maximize)) {
    return refuse(why_not,
                  "Transformer Engine's formula is known for decoupled weight decay and minimizing "
                  "only; use host/1");
  }
  if (h.variant == Variant::kTorchCudaFused2 && l2 && h.grad_scale == 1.0F) {
    return refuse(why_not,
                  "torch's fused Adam with L2 weight decay rounds one element in four differently, "
                  "which one depends on its tensors' alignment; use AdamW, foreach, or host/1");
  }
  return true;
}

Scalars prepare(const Hyper& h) {
  Scalars s{};
  s.variant = h.variant;
  s.decoupled = h.decoupled;
  s.maximize = h.maximize;
  s.grad_scale = h.grad_scale;
  s.lr = static_cast<float>(h.lr);
  s.beta1 = static_cast<float>(h.beta1);
  s.beta2 = static_cast<float>(h.beta2);
  s.eps = static_cast<float>(h.eps);
  s.weight_decay = static_cast<float>(h.weight_decay);
  s.lr_d = h.lr;
  s.beta1_d = h.beta1;
  s.beta2_d = h.beta2;
  s.eps_d = h.eps;
  s.weight_decay_d = h.weight_decay;
  s.step = h.step;
  if (entry(h.variant).family == Family::kTransformerEngine) {
    prepare_te(h, &s);
  } else {
    prepare_torch(h, &s);
  }
  return s;
}

}  // namespace millpond::kernels
