// The CUDA device on tiles in plain memory beside the CPU device on others: the same bytes in every
// format, with several tiles under way, on staging, on mapped memory and on memory that could not
// be pinned. Small enough for compute-sanitizer.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "millpond/error.hpp"
#include "plugin/device/cuda.h"
#include "plugin/device/work.h"
#include "tests/kernels/plain_adam.h"

namespace millpond::plugin {
namespace {

using kernels::Storage;

constexpr kernels::Variant kVariant = kernels::Variant::kTeFusedAdam;  // runs on both

// Host memory that kernels reach too, so that one set of addresses serves both devices.
class Shared {
 public:
  explicit Shared(std::uint64_t bytes) {
    EXPECT_EQ(cudaHostAlloc(&memory_, bytes + 1, cudaHostAllocDefault), cudaSuccess);
  }
  ~Shared() { cudaFreeHost(memory_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

class Mapping {
 public:
  explicit Mapping(std::uint64_t bytes) : bytes_(bytes) {
    data_ = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Mapping() { munmap(data_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  std::uint64_t bytes_;
};

// One device's tiles and parameters.
struct Side {
  Side(const Plan& plan, const std::vector<ShardShape>& shapes)
      : tiles(plan.tiles.size() * plan.max_tile_bytes) {
    for (std::size_t i = 0; i < plan.tiles.size(); ++i) {
      views.push_back({static_cast<std::uint32_t>(i), &plan.tiles[i], &plan,
                       tiles.data() + i * plan.max_tile_bytes});
    }
    test::Numbers numbers(3);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const std::uint64_t n = shapes[i].numel;
      model.push_back(std::make_unique<Shared>(n * 4 + 4));
      grad.push_back(std::make_unique<Shared>(n * 4));
      ShardWork shard;
      shard.id = i;
      shard.numel = n;
      shard.moments_only = shapes[i].moments_only;
      shard.model_element = shard.moments_only ? kernels::Element::kFp32 : kernels::Element::kBf16;
      // One element further on than allocated: unaligned for 16-byte accesses.
      shard.model = static_cast<std::byte*>(model[i]->get()) + item_bytes(shard.model_element);
      shard.grad = grad[i]->get();
      const std::vector<float> start = numbers.values(n, -8, 0);
      kernels::narrow(start.data(), shard.model, shard.model_element, n);
      step.shards.push_back(shard);
    }
  }

  void visit(TileWork& work) {
    std::size_t next = 0, done = 0;
    while (done < views.size()) {
      if (next < views.size() && next - done < work.capacity()) {
        work.start(&views[next++]);
      } else {
        TileView* const view = work.finished(true);
        ASSERT_EQ(view, &views[done]);  // this device keeps their order
        ++done;
      }
    }
    ASSERT_EQ(work.finished(true), nullptr);
  }

  void take_step(Device& device, std::uint64_t number, millpond_stream stream) {
    test::Numbers numbers(number);
    const kernels::Hyper hyper{kVariant, 1e-2, 0.9, 0.99, 1e-8, 0.1, number, 1.0F, true, false};
    step.hypers.assign(1, hyper);
    step.scalars.assign(1, kernels::prepare(hyper));
    for (std::size_t i = 0; i < step.shards.size(); ++i) {
      const std::vector<float> values = numbers.values(step.shards[i].numel, -20, 0);
      std::memcpy(grad[i]->get(), values.data(), values.size() * sizeof(float));
      step.shards[i].active = (i + number) % 3 != 0;
    }
    visit(device.begin_step(step, stream));
    device.finish_step(stream);
  }

  Mapping tiles;
  std::vector<TileView> views;
  std::vector<std::unique_ptr<Shared>> model, grad;
  StepWork step;
};

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string refusal = cuda_refusal(0);
    if (!refusal.empty()) GTEST_SKIP() << refusal;
  }
  static Plan make(Storage moments) {
    LayoutOptions options;
    options.tile_elements = 8192;
    options.block_elements = 4096;
    options.storage = {Storage::kFp32, moments, moments};
    return make_plan(kShapes, options);
  }
  static CudaRequest request(const Plan& plan, std::uint64_t staging_tiles) {
    CudaRequest r;
    r.variant = kVariant;
    r.plan = &plan;
    r.tile_bytes = plan.max_tile_bytes;
    r.staging_bytes = staging_tiles * kernels::round_up(plan.max_tile_bytes, 512);
    r.uid = "rank00000/opt0_0";
    r.stream = kStream;
    return r;
  }
  // Both devices from the models to the models after some steps.
  static void compare(Storage moments, std::uint64_t staging_tiles, bool pinned) {
    SCOPED_TRACE(std::string(kernels::storage_name(moments)) + " staging " +
                 std::to_string(staging_tiles) + (pinned ? "" : " not pinned"));
    const Plan plan = make(moments);
    Side cpu(plan, kShapes), cuda(plan, kShapes);
    millpond_host_api api{};
    Host host(api, MILLPOND_LOG_ERROR);
    ThreadPool pool(2);
    const auto cpu_device = make_cpu_device(pool, host, "rank00000/opt0_0", kVariant);
    const auto pin = make_cuda_pin(host, 0);
    if (pinned) pin->attach(cuda.tiles.data(), cuda.tiles.bytes());
    const auto device = make_cuda_device(request(plan, staging_tiles), host, *pin);
    const std::vector<std::uint8_t> chosen(kShapes.size(), 1);
    cpu.visit(cpu_device->begin_fill_main(cpu.step.shards, chosen, {}));
    cuda.visit(device->begin_fill_main(cuda.step.shards, chosen, kStream));
    for (std::uint64_t number = 1; number <= 4; ++number) {
      cpu.take_step(*cpu_device, number, {});
      cuda.take_step(*device, number, kStream);
      if (number == 2) {
        device->suspend();
        EXPECT_EQ(device->device_bytes(), 0U);
        device->resume();
      }
    }
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    for (std::size_t t = 0; t < plan.tiles.size(); ++t) {
      EXPECT_EQ(cuda.views[t].moments_present, cpu.views[t].moments_present);
      EXPECT_EQ(std::memcmp(cuda.views[t].memory, cpu.views[t].memory, plan.tiles[t].total_bytes),
                0)
          << "tile " << t;
    }
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      const std::uint64_t bytes = kShapes[i].numel * item_bytes(cpu.step.shards[i].model_element);
      EXPECT_EQ(std::memcmp(cuda.step.shards[i].model, cpu.step.shards[i].model, bytes), 0) << i;
      std::memset(cuda.step.shards[i].model, 0xff, kShapes[i].moments_only ? 0 : bytes);
    }
    cuda.visit(device->begin_write_model(cuda.step.shards, kStream));
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      // Every shard had a gradient at least once, so its parameter is its main rounded.
      const std::uint64_t bytes = kShapes[i].numel * item_bytes(cpu.step.shards[i].model_element);
      EXPECT_EQ(std::memcmp(cuda.step.shards[i].model, cpu.step.shards[i].model, bytes), 0) << i;
    }
  }

  static constexpr millpond_stream kStream{MILLPOND_DEVICE_CUDA, 0, 1};
  static const std::vector<ShardShape> kShapes;
};
const std::vector<ShardShape> CudaDeviceTest::kShapes{
    {8191}, {5}, {20'001}, {4096, 0, true}, {9001, 0, true}, {257}, {1}, {300}};

TEST_F(CudaDeviceTest, leaves_the_bytes_that_the_cpu_leaves) {
  for (const Storage moments : {Storage::kFp32, Storage::kBf16, Storage::kFp16Scaled,
                                Storage::kFp8E4m3Scaled, Storage::kFp8E5m2Scaled}) {
    for (const std::uint64_t staging_tiles : {0, 1, 3}) compare(moments, staging_tiles, true);
  }
}

TEST_F(CudaDeviceTest, memory_that_is_not_pinned_works_through_staging) {
  compare(Storage::kFp32, 3, false);
  compare(Storage::kFp8E5m2Scaled, 2, false);
}

TEST_F(CudaDeviceTest, a_driver_that_does_not_pin_is_told_of_and_mapped_work_refused) {
  std::vector<std::string> log;
  millpond_host_api api{};
  api.context = &log;
  api.log = [](void* context, std::uint32_t, millpond_str line) {
    static_cast<std::vector<std::string>*>(context)->emplace_back(line.ptr, line.len);
  };
  Host host(api, MILLPOND_LOG_WARNING);
  const Plan plan = make(Storage::kFp32);
  Side side(plan, kShapes);
  // What is registered already is refused: the driver's own way of saying no.
  ASSERT_EQ(cudaHostRegister(side.tiles.data(), 4096, cudaHostRegisterDefault), cudaSuccess);
  const auto pin = make_cuda_pin(host, 0);
  pin->attach(side.tiles.data(), side.tiles.bytes());
  host.deliver_log();
  EXPECT_FALSE(pin->pinned());
  ASSERT_EQ(log.size(), 1U);
  EXPECT_NE(log[0].find("cudaErrorHostMemoryAlreadyRegistered"), std::string::npos) << log[0];
  EXPECT_NE(log[0].find("ulimit -l"), std::string::npos) << log[0];
  const auto device = make_cuda_device(request(plan, 0), host, *pin);
  const std::vector<std::uint8_t> chosen(kShapes.size(), 1);
  try {
    device->begin_fill_main(side.step.shards, chosen, kStream);
    ADD_FAILURE() << "kernels would work on memory that the device cannot reach";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_MEMORY);
    EXPECT_EQ(error.field_name(), "options.device_staging_bytes");
  }
  EXPECT_EQ(cudaHostUnregister(side.tiles.data()), cudaSuccess);
  pin->attach(side.tiles.data(), side.tiles.bytes());
  EXPECT_TRUE(pin->pinned());
}

TEST_F(CudaDeviceTest, the_callers_device_and_context_stay_as_they_were) {
  int before = -1, after = -1;
  ASSERT_EQ(cudaGetDevice(&before), cudaSuccess);
  const Plan plan = make(Storage::kFp32);
  Host host(millpond_host_api{}, MILLPOND_LOG_ERROR);
  const auto pin = make_cuda_pin(host, 0);
  { const auto device = make_cuda_device(request(plan, 2), host, *pin); }
  ASSERT_EQ(cudaGetDevice(&after), cudaSuccess);
  EXPECT_EQ(before, after);
  EXPECT_NE(cuda_refusal(99).find("no CUDA device 99"), std::string::npos);
}

}  // namespace
}  // namespace millpond::plugin
