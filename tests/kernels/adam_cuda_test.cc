// The CUDA update: every format of moments against the CPU kernels' bytes, and the Transformer
// Engine formula against its expressions left to nvcc. Comparison with torch itself is
// tests/python/test_kernels_cuda.py.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/adam_cuda.h"
#include "kernels/flat_run.h"
#include "tests/kernels/adam_cuda_reference.h"
#include "tests/kernels/plain_adam.h"

namespace millpond::kernels {
namespace {

using test::Numbers;

template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& from) : count_(from.size()) {
    EXPECT_EQ(cudaMalloc(&data_, count_ * sizeof(T) + 16), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, from.data(), count_ * sizeof(T), cudaMemcpyDefault), cudaSuccess);
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* get() const { return static_cast<T*>(data_); }
  std::vector<T> back() const {
    std::vector<T> to(count_);
    EXPECT_EQ(cudaMemcpy(to.data(), data_, count_ * sizeof(T), cudaMemcpyDefault), cudaSuccess);
    return to;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

class CudaUpdate : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA device here";
    }
  }
};

using Bytes = std::vector<unsigned char>;

// Codes, then scales, of a segment.
struct Packed {
  Packed(const std::vector<float>& values, Storage storage, bool keep_nonzero)
      : groups(round_up(values.size(), kGroupElements) / kGroupElements),
        payload(groups * kGroupElements * item_bytes(storage)),
        bytes(payload + 4 * groups),
        storage(storage) {
    kernel_table(best_processor())
        ->encode(values.data(), at(bytes.data()), values.size(), keep_nonzero);
  }
  FlatSegment at(unsigned char* base) const {
    return {base, is_scaled(storage) ? base + payload : nullptr, storage};
  }
  std::uint64_t groups, payload;
  Bytes bytes;
  Storage storage;
};

void step_on_both(std::uint64_t numel, Storage moments, bool fresh, Element element) {
  SCOPED_TRACE(testing::Message() << numel << ' ' << storage_name(moments) << " fresh " << fresh);
  Numbers numbers(numel);
  Packed main(numbers.values(numel, -8, 0), Storage::kFp32, false);
  Packed exp_avg(numbers.values(numel, -14, -4), moments, false);
  std::vector<float> squares = numbers.values(numel, -40, -8);
  for (float& v : squares) v = std::fabs(v);
  Packed exp_avg_sq(squares, moments, true);
  const std::vector<float> wide = numbers.values(numel, -24, 0);
  // One element further on than allocated: 16-bit gradients at odd addresses.
  Bytes grad((numel + 1) * 4), model(numel * 2 + 2);
  const std::uint64_t shift = element == Element::kFp32 ? 0 : 2;
  narrow(wide.data(), grad.data() + shift, element, numel);

  const Scalars scalars =
      prepare({Variant::kTeFusedAdam, 1e-3, 0.9, 0.999, 1e-8, 0.1, 7, 1.0F, true, false});
  FlatRun run{};
  run.count = run.body = numel;
  run.grad_element = element;
  run.model_element = Element::kBf16;
  run.moments_present = !fresh;

  const OnDevice<unsigned char> d_main(main.bytes), d_m(exp_avg.bytes), d_v(exp_avg_sq.bytes),
      d_grad(grad), d_model(model);
  // Two pieces, cut at a group, so that a later piece is found.
  std::vector<CudaPiece> pieces;
  for (std::uint64_t begin = 0; begin < numel;) {
    const std::uint64_t count =
        begin == 0 && numel > 512 ? round_up(numel / 2, kGroupElements) : numel - begin;
    pieces.push_back({begin, count, 0, static_cast<std::uint32_t>(begin / kGroupElements)});
    begin += count;
  }
  CudaShard shard{};
  shard.grad = d_grad.get() + shift;
  shard.model = d_model.get();
  shard.grad_element = element;
  shard.model_element = Element::kBf16;
  shard.active = true;
  const OnDevice<CudaPiece> d_pieces(pieces);
  const OnDevice<CudaShard> d_shards({shard});
  const OnDevice<Scalars> d_scalars({scalars});
  CudaTile tile{};
  const std::uint64_t whole = round_up(numel, kGroupElements);
  // One block, as Packed lays a segment out.
  tile.segments[0] = cuda_segment(d_main.get(), Storage::kFp32, whole, whole);
  tile.segments[1] = cuda_segment(d_m.get(), moments, whole, whole);
  tile.segments[2] = cuda_segment(d_v.get(), moments, whole, whole);
  tile.pieces = d_pieces.get();
  tile.shards = d_shards.get();
  tile.count = static_cast<std::uint32_t>(pieces.size());
  tile.groups = tile.groups_per_block = static_cast<std::uint32_t>(whole / kGroupElements);
  tile.moments_present = !fresh;
  ASSERT_EQ(complete_scalars_on_cuda(d_scalars.get(), 1, nullptr), cudaSuccess);
  ASSERT_EQ(update_on_cuda(Variant::kTeFusedAdam, tile, d_scalars.get(), 3, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  run.main = main.at(main.bytes.data());
  run.exp_avg = exp_avg.at(exp_avg.bytes.data());
  run.exp_avg_sq = exp_avg_sq.at(exp_avg_sq.bytes.data());
  run.grad = grad.data() + shift;
  run.model = model.data();
  kernel_table(best_processor())->update(run, scalars);
  EXPECT_EQ(d_main.back(), main.bytes);
  EXPECT_EQ(d_m.back(), exp_avg.bytes);
  EXPECT_EQ(d_v.back(), exp_avg_sq.bytes);
  EXPECT_EQ(d_model.back(), model);
}

TEST_F(CudaUpdate, stores_the_bytes_that_the_cpu_stores) {
  for (const Storage storage : {Storage::kFp32, Storage::kBf16, Storage::kFp16Scaled,
                                Storage::kFp8E4m3Scaled, Storage::kFp8E5m2Scaled}) {
    for (const std::uint64_t numel : {1, 7, 255, 256, 257, 1000, 4096, 65'543, 1'048'576 + 3}) {
      for (const bool fresh : {false, true}) {
        step_on_both(numel, storage, fresh,
                     numel % 2 == 0 ? Element::kFp32
                     : fresh        ? Element::kBf16
                                    : Element::kFp16);
      }
    }
  }
}

TEST_F(CudaUpdate, te_formula_is_what_nvcc_makes_of_it) {
  for (const std::uint64_t numel : {7ULL, 65'543ULL, 1'048'576ULL}) {
    Numbers numbers(numel);
    const std::vector<float> start = numbers.values(numel, -8, 0);
    const std::vector<float> zeros(numel);
    const OnDevice<float> p(start), m(zeros), v(zeros), p2(start), m2(zeros), v2(zeros);
    const std::uint64_t whole = round_up(numel, kGroupElements);
    CudaTile tile{};
    const auto segment = [&](const OnDevice<float>& x) {
      return cuda_segment(reinterpret_cast<unsigned char*>(x.get()), Storage::kFp32, whole, whole);
    };
    tile.segments[0] = segment(p);
    tile.segments[1] = segment(m);
    tile.segments[2] = segment(v);
    tile.count = 1;
    tile.groups = tile.groups_per_block = static_cast<std::uint32_t>(whole / kGroupElements);
    tile.moments_present = true;
    const OnDevice<CudaPiece> pieces({{0, numel, 0, 0}});
    tile.pieces = pieces.get();
    for (std::uint64_t step = 1; step <= 100; ++step) {
      const OnDevice<float> g(numbers.values(numel, -24, 0));
      const Scalars s =
          prepare({Variant::kTeFusedAdam, 1e-3, 0.9, 0.999, 1e-8, 0.1, step, 1.0F, true, false});
      CudaShard shard{};
      shard.grad = reinterpret_cast<const unsigned char*>(g.get());
      shard.active = true;
      const OnDevice<CudaShard> shards({shard});
      tile.shards = shards.get();
      const OnDevice<Scalars> scalars({s});
      ASSERT_EQ(update_on_cuda(Variant::kTeFusedAdam, tile, scalars.get(), 500, nullptr),
                cudaSuccess);
      const float beta1 = 0.9F, beta2 = 0.999F;
      const auto t = static_cast<double>(step);
      const test::TeStep plain{1e-3F,
                               beta1,
                               beta2,
                               1e-8F,
                               0.1F,
                               static_cast<float>(1 - std::pow(static_cast<double>(beta1), t)),
                               static_cast<float>(1 - std::pow(static_cast<double>(beta2), t))};
      ASSERT_EQ(
          test::te_reference_on_cuda(p2.get(), m2.get(), v2.get(), g.get(), numel, plain, nullptr),
          cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    EXPECT_EQ(p.back(), p2.back());
    EXPECT_EQ(m.back(), m2.back());
    EXPECT_EQ(v.back(), v2.back());
  }
}

// Main, moments and a bf16 model of one shard, with what lies behind them watched.
TEST_F(CudaUpdate, every_variant_steps_and_leaves_alone_what_is_behind_the_end) {
  for (const Variant variant :
       {Variant::kTorchCudaFused1, Variant::kTorchCudaFused2, Variant::kTorchCudaForeach,
        Variant::kTorchCudaSingle, Variant::kTeFusedAdam, Variant::kTeFusedAdamFast}) {
    for (const std::uint64_t numel : {1ULL, 255ULL, 257ULL, 4099ULL}) {
      SCOPED_TRACE(testing::Message() << variant_name(variant) << ' ' << numel);
      Numbers numbers(numel);
      const std::uint64_t whole = round_up(numel, kGroupElements);
      std::vector<float> start = numbers.values(numel, -8, 0);
      start.resize(whole, 77.0F);
      const std::vector<float> zeros(whole);
      std::vector<float> grads = numbers.values(numel, -4, 0);
      for (float& g : grads) g = g == 0.0F ? 0.5F : g;
      const OnDevice<float> main(start), m(zeros), v(zeros), grad(grads);
      const OnDevice<unsigned short> model(std::vector<unsigned short>(numel + 8, 0x7777));
      CudaShard shard{};
      shard.grad = reinterpret_cast<const unsigned char*>(grad.get());
      shard.model = reinterpret_cast<unsigned char*>(model.get());
      shard.model_element = Element::kBf16;
      shard.active = true;
      const OnDevice<CudaPiece> pieces({{0, numel, 0, 0}});
      const OnDevice<CudaShard> shards({shard});
      const OnDevice<Scalars> scalars(
          {prepare({variant, 1e-2, 0.9, 0.999, 1e-8, 0.1, 1, 1.0F, true, false})});
      CudaTile tile{};
      const auto segment = [&](const OnDevice<float>& x) {
        return cuda_segment(reinterpret_cast<unsigned char*>(x.get()), Storage::kFp32, whole,
                            whole);
      };
      tile.segments[0] = segment(main);
      tile.segments[1] = segment(m);
      tile.segments[2] = segment(v);
      tile.pieces = pieces.get();
      tile.shards = shards.get();
      tile.count = 1;
      tile.groups = tile.groups_per_block = static_cast<std::uint32_t>(whole / kGroupElements);
      ASSERT_EQ(complete_scalars_on_cuda(scalars.get(), 1, nullptr), cudaSuccess);
      ASSERT_EQ(update_on_cuda(variant, tile, scalars.get(), 2, nullptr), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      const std::vector<float> stepped = main.back();
      for (std::uint64_t i = 0; i < whole; ++i) {
        if (i >= numel) {
          ASSERT_EQ(stepped[i], 77.0F) << i;
          continue;
        }
        // The first step of Adam goes by the rate against the gradient, and decays by a thousandth.
        const float moved = stepped[i] - start[i] * (1 - 1e-3F);
        ASSERT_NEAR(std::fabs(moved), 1e-2F, 1e-4F) << i;
      }
      const std::vector<unsigned short> written = model.back();
      for (std::uint64_t i = numel; i < written.size(); ++i) ASSERT_EQ(written[i], 0x7777) << i;
    }
  }
}

TEST_F(CudaUpdate, a_variant_of_the_cpu_is_refused) {
  CudaTile tile{};
  tile.groups = 1;
  EXPECT_NE(update_on_cuda(Variant::kTorchCpuFused, tile, nullptr, 1, nullptr), cudaSuccess);
  EXPECT_FALSE(variant_supported(Variant::kTorchCpuFused, true, nullptr));
  for (const Variant v :
       {Variant::kTorchCudaFused1, Variant::kTorchCudaFused2, Variant::kTeFusedAdamFast}) {
    EXPECT_TRUE(variant_supported(v, true, nullptr));
    EXPECT_FALSE(variant_supported(v, false, nullptr));
  }
}

}  // namespace
}  // namespace millpond::kernels
