// The update of a run, vectorised over a lane type V: groups of 256 elements pass through the
// first-level cache, fp32 segments are updated where they lie. Included only by
// update_<processor>.cc, each with its own V.
#ifndef MILLPOND_KERNELS_UPDATE_LOOP_H_
#define MILLPOND_KERNELS_UPDATE_LOOP_H_

#include "kernels/group_loop.h"

namespace millpond::kernels {

// The elements of one group in fp32, in place.
struct GroupState {
  float* main;
  float* exp_avg;
  float* exp_avg_sq;
  const float* grad;
  int count;
  unsigned char* model;  // bf16; used by Bf16Model only
};

// Mkl: the policy for MKL's square root on this processor.
template <class V, class Mkl>
struct UpdateLoop {
  using Groups = GroupLoop<V>;
  // Elements at once: few enough that the parameter is still in the cache where it is narrowed in a
  // pass of its own.
  static constexpr std::uint64_t kInPlace = 16 * kGroup;
  using Formula = void (*)(const GroupState&, const Scalars&);

  // How a vector of moments is read and written where it lies.
  struct Fp32Moments {
    static constexpr bool kParts = true;
    static MILLPOND_HD V load(const float* moments, int i) { return V::load(moments + i); }
    static MILLPOND_HD void store(V value, float* moments, int i, bool) {
      value.store(moments + i);
    }
  };
  // `moments` points at 16-bit codes. Whole vectors only: every group of them is whole.
  struct Bf16Moments {
    static constexpr bool kParts = false;
    static MILLPOND_HD unsigned char* code(const float* moments, int i) {
      return static_cast<unsigned char*>(const_cast<void*>(static_cast<const void*>(moments))) +
             2 * i;
    }
    static MILLPOND_HD V load(const float* moments, int i) {
      return Bf16::template decode<V>(V::load16(code(moments, i)));
    }
    static MILLPOND_HD void store(V value, float* moments, int i, bool keep_nonzero) {
      V::store16(Bf16::template encode<V>(value, value, keep_nonzero), code(moments, i));
    }
  };

  // Whether the rounded parameter is written in the same pass. Whole vectors only.
  struct NoModel {
    static constexpr bool kWrites = false;
  };
  struct Bf16Model {
    static constexpr bool kWrites = true;
  };

  // kFresh: the moments are zero and their bytes are not read.
  template <bool kFresh, class Moments, class Model, class Step>
  static MILLPOND_HD void each_vector(const GroupState& group, const Step& step) {
    int i = 0;
    for (; i + V::kLanes <= group.count; i += V::kLanes) {
      State<V> s{V::load(group.main + i), kFresh ? V(0.0F) : Moments::load(group.exp_avg, i),
                 kFresh ? V(0.0F) : Moments::load(group.exp_avg_sq, i)};
      step(s, V::load(group.grad + i));
      s.main.store(group.main + i);
      Moments::store(s.exp_avg, group.exp_avg, i, false);
      Moments::store(s.exp_avg_sq, group.exp_avg_sq, i, true);
      if constexpr (Model::kWrites) {
        V::store16(Bf16::template encode<V>(s.main, s.main, false), group.model + 2 * i);
      }
    }
    if constexpr (Moments::kParts && !Model::kWrites) {
      const int left = group.count - i;
      if (left == 0) return;
      State<V> s{V::load_part(group.main + i, left),
                 kFresh ? V(0.0F) : V::load_part(group.exp_avg + i, left),
                 kFresh ? V(0.0F) : V::load_part(group.exp_avg_sq + i, left)};
      step(s, V::load_part(group.grad + i, left));
      s.main.store_part(group.main + i, left);
      s.exp_avg.store_part(group.exp_avg + i, left);
      s.exp_avg_sq.store_part(group.exp_avg_sq + i, left);
    }
  }

  template <bool kFresh, class Moments, class Model, SquareOrder kOrder, class Root>
  static void torch_cpu(const GroupState& group, const Scalars& s) {
    const TorchCpuScalars<V> c{V(s.one_minus_beta1),
                               V(s.one_minus_beta2),
                               V(s.beta2),
                               V(s.decay),
                               V(s.step_size),
                               V(s.bias2_sqrt),
                               V(s.eps),
                               __builtin_fabsf(s.one_minus_beta1) < 0.5F};
    each_vector<kFresh, Moments, Model>(
        group, [&c](State<V> & state, V grad) __attribute__((always_inline)) {
          torch_cpu_adam<kOrder, Root>(state, grad, c);
        });
  }
  template <bool kFresh, class Moments, class Model>
  static void te(const GroupState& group, const Scalars& s) {
    const TeScalars<V> c{
        V(s.lr),    V(s.beta1), V(s.beta2), V(s.one_minus_beta1), V(s.one_minus_beta2),
        V(s.bias1), V(s.bias2), V(s.eps),   V(s.weight_decay)};
    each_vector<kFresh, Moments, Model>(
        group, [&c](State<V> & state, V grad)
                   __attribute__((always_inline)) { te_adam(state, grad, c); });
  }

  template <bool kFresh, class Moments, class Model = NoModel>
  static Formula formula(Variant variant, bool tail) {
    switch (variant) {
      case Variant::kTorchCpuFused:
        return tail ? torch_cpu<kFresh, Moments, Model, SquareOrder::kTail, IeeeRoot>
                    : torch_cpu<kFresh, Moments, Model, SquareOrder::kBody, IeeeRoot>;
      case Variant::kTorchCpuForeach:
        return torch_cpu<kFresh, Moments, Model, SquareOrder::kBody, IeeeRoot>;
      case Variant::kTorchCpuForeachMkl:
        return torch_cpu<kFresh, Moments, Model, SquareOrder::kBody, Mkl>;
      default:
        return te<kFresh, Moments, Model>;
    }
  }

  // What comes before the formula: scaling, direction, weight decay as part of the gradient (L2).
  static void shape_grad(const float* from, float* to, const float* main, int count,
                         const Scalars& s) {
    const bool l2 = !s.decoupled && s.weight_decay != 0.0F;
    for (int i = 0; i < count; i += V::kLanes) {
      const int left = count - i;
      const bool whole = left >= V::kLanes;
      V g = whole ? V::load(from + i) : V::load_part(from + i, left);
      if (s.grad_scale != 1.0F) g = g / V(s.grad_scale);
      if (s.maximize) g = -g;
      if (l2) {
        g = fma(whole ? V::load(main + i) : V::load_part(main + i, left), V(s.weight_decay), g);
      }
      if (whole) {
        g.store(to + i);
      } else {
        g.store_part(to + i, left);
      }
    }
  }

  // Where a group's fp32 values are: in place, or in `buffer` with what is stored decoded into it.
  static MILLPOND_HD float* open(const FlatSegment& segment, std::uint64_t index, int count,
                                 float* buffer, bool read) {
    if (segment.storage == Storage::kFp32) {
      return static_cast<float*>(static_cast<void*>(segment.data + index * kGroup * sizeof(float)));
    }
    if (read) Groups::decode_group(segment, index, buffer);
    if (count < kGroup) memset(buffer + count, 0, sizeof(float) * (kGroup - count));
    return buffer;
  }

  template <class Moments>
  static Formula plain_formula(Variant variant, bool fresh, bool bf16_model) {
    if (bf16_model) {
      return fresh ? formula<true, Moments, Bf16Model>(variant, false)
                   : formula<false, Moments, Bf16Model>(variant, false);
    }
    return fresh ? formula<true, Moments>(variant, false) : formula<false, Moments>(variant, false);
  }

  // All whole groups before the tail in one pass: bf16 moments and parameters are converted on the
  // way, so that loads and arithmetic of neighbouring vectors overlap. For runs with fp32 mains and
  // gradients that need no shaping. Returns the elements done.
  static std::uint64_t update_plain(const FlatRun& run, const Scalars& scalars) {
    const bool bf16_model = run.model != nullptr && run.model_element == Element::kBf16;
    const bool fresh = !run.moments_present;
    const bool bf16_moments = run.exp_avg.storage == Storage::kBf16;
    const Formula body = bf16_moments
                             ? plain_formula<Bf16Moments>(scalars.variant, fresh, bf16_model)
                             : plain_formula<Fp32Moments>(scalars.variant, fresh, bf16_model);
    const std::uint64_t moment_size = bf16_moments ? 2 : 4;
    const std::uint64_t model_size = Groups::element_size(run.model_element);
    const auto floats = [](unsigned char* at) {
      return static_cast<float*>(static_cast<void*>(at));
    };
    const std::uint64_t whole = run.body / kGroup * kGroup;
    for (std::uint64_t i = 0; i < whole; i += kInPlace) {
      const auto n = static_cast<int>(whole - i < kInPlace ? whole - i : kInPlace);
      unsigned char* const model = run.model == nullptr ? nullptr : run.model + model_size * i;
      const GroupState group{floats(run.main.data + 4 * i),
                             floats(run.exp_avg.data + moment_size * i),
                             floats(run.exp_avg_sq.data + moment_size * i),
                             static_cast<const float*>(static_cast<const void*>(run.grad + 4 * i)),
                             n,
                             model};
      body(group, scalars);
      if (model != nullptr && !bf16_model) {
        Groups::narrow_part(group.main, model, run.model_element, n);
      }
    }
    return whole;
  }

  static void update(const FlatRun& run, const Scalars& scalars) {
    alignas(64) float main[kGroup], exp_avg[kGroup], exp_avg_sq[kGroup], grad[kGroup];
    const bool fresh = !run.moments_present;
    const Formula body = fresh ? formula<true, Fp32Moments>(scalars.variant, false)
                               : formula<false, Fp32Moments>(scalars.variant, false);
    const Formula tail = fresh ? formula<true, Fp32Moments>(scalars.variant, true)
                               : formula<false, Fp32Moments>(scalars.variant, true);
    const bool shaped = scalars.grad_scale != 1.0F || scalars.maximize ||
                        (!scalars.decoupled && scalars.weight_decay != 0.0F);
    const std::uint64_t grad_size = Groups::element_size(run.grad_element);
    const std::uint64_t model_size = Groups::element_size(run.model_element);
    const bool plain =
        !shaped && run.grad_element == Element::kFp32 && run.main.storage == Storage::kFp32 &&
        run.exp_avg.storage == run.exp_avg_sq.storage &&
        (run.exp_avg.storage == Storage::kFp32 || run.exp_avg.storage == Storage::kBf16);
    for (std::uint64_t i = plain ? update_plain(run, scalars) : 0; i < run.count; i += kGroup) {
      const std::uint64_t index = i / kGroup;
      const int n = static_cast<int>(run.count - i < kGroup ? run.count - i : kGroup);
      GroupState group{open(run.main, index, n, main, true),
                       open(run.exp_avg, index, n, exp_avg, !fresh),
                       open(run.exp_avg_sq, index, n, exp_avg_sq, !fresh),
                       grad,
                       n,
                       nullptr};
      if (run.grad_element == Element::kFp32) {
        group.grad = static_cast<const float*>(static_cast<const void*>(run.grad + grad_size * i));
      } else {
        Groups::widen_part(run.grad + grad_size * i, run.grad_element, grad, n);
      }
      if (shaped) {
        shape_grad(group.grad, grad, group.main, n, scalars);
        group.grad = grad;
      }
      const int before_tail = run.body >= i + n ? n : static_cast<int>(run.body - i);
      group.count = before_tail;
      body(group, scalars);
      if (before_tail < n) {
        tail({group.main + before_tail, group.exp_avg + before_tail, group.exp_avg_sq + before_tail,
              group.grad + before_tail, n - before_tail, nullptr},
             scalars);
      }
      if (group.main == main) Groups::encode_group(main, run.main, index, false);
      if (group.exp_avg == exp_avg) Groups::encode_group(exp_avg, run.exp_avg, index, false);
      if (group.exp_avg_sq == exp_avg_sq) {
        Groups::encode_group(exp_avg_sq, run.exp_avg_sq, index, true);
      }
      if (run.model != nullptr) {
        Groups::narrow_part(group.main, run.model + model_size * i, run.model_element, n);
      }
    }
  }

  static constexpr KernelTable table() {
    return {update, Groups::decode, Groups::encode, Groups::widen, Groups::narrow};
  }
};

}  // namespace millpond::kernels

#endif  // MILLPOND_KERNELS_UPDATE_LOOP_H_
