// The CPU device on tiles in plain memory, against the plain loop.
#include <limits>

#include "tests/device/world.h"

namespace millpond::plugin {
namespace {

using kernels::Storage;
using kernels::Variant;
using test::bits_of;

void expect_same(const std::vector<float>& got, const std::vector<float>& wanted,
                 const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(bits_of(got[i]), bits_of(wanted[i])) << what << " at " << i;
  }
}

void expect_as_plain(World& world, const std::vector<bool>& moved) {
  for (std::uint32_t i = 0; i < world.cases().size(); ++i) {
    const ShardCase& c = world.cases()[i];
    const std::string name = "shard " + std::to_string(i);
    if (c.moments_only) {
      expect_same(world.own_parameter[i], world.main[i], name + " parameter");
    } else {
      expect_same(world.stored(MILLPOND_SEGMENT_MAIN, i), world.main[i], name + " main");
    }
    expect_same(world.stored(MILLPOND_SEGMENT_EXP_AVG, i), world.exp_avg[i], name + " exp_avg");
    expect_same(world.stored(MILLPOND_SEGMENT_EXP_AVG_SQ, i), world.exp_avg_sq[i],
                name + " exp_avg_sq");
    if (c.moments_only || !moved[i]) continue;
    if (!c.model_here) {
      expect_same(world.host().copied[i], world.main[i], name + " copied");
      continue;
    }
    for (std::size_t k = 0; k < c.numel; ++k) {
      ASSERT_EQ(world.model[i][k], test::plain_bf16(world.main[i][k])) << name << " model " << k;
    }
  }
}

// Sizes around a tile of 8192 and a block of 4096.
const std::vector<ShardCase> kShards = {{8191},
                                        {0},
                                        {8192},
                                        {8193},
                                        {5},
                                        {81'920},
                                        {4096},
                                        {0},
                                        {777, false, false},
                                        {10'001, false, false}};

TEST(CpuDevice, B03_shards_around_a_tile_for_every_tile_size_and_thread_count) {
  for (const std::uint64_t tile : {4096, 8192, 65'536, 1 << 18}) {
    for (const std::uint32_t threads : {1, 2, 4}) {
      World::Settings settings;
      settings.tile_elements = tile;
      settings.block_elements = tile > 8192 ? 8192 : 4096;
      settings.threads = threads;
      World world(kShards, settings);
      const std::vector<bool> all(kShards.size(), true);
      for (std::uint64_t step = 1; step <= 3; ++step) world.take_step(step, all);
      expect_as_plain(world, all);
      for (const TileView& view : world.views()) {
        EXPECT_TRUE(view.moments_present);
        EXPECT_TRUE(view.dirty);
      }
    }
  }
}

TEST(CpuDevice, a_shard_without_a_gradient_keeps_its_bytes) {
  World world(kShards, {});
  std::vector<bool> active(kShards.size(), true);
  active[2] = active[4] = active[8] = false;
  world.take_step(1, active);
  expect_as_plain(world, active);
  for (const std::uint16_t m : world.model[4]) EXPECT_EQ(m, 0xffff);
  EXPECT_EQ(world.host().copied[8], std::vector<float>(777, 7.0F));
  active.assign(active.size(), false);
  active[2] = true;
  world.take_step(2, active);
  expect_as_plain(world, active);
}

TEST(CpuDevice, a_tile_without_any_gradient_is_untouched) {
  World world({{8192}, {8192}}, {});
  world.take_step(1, {true, false});
  EXPECT_TRUE(world.views()[0].moments_present);
  EXPECT_TRUE(world.views()[0].dirty);
  EXPECT_FALSE(world.views()[1].moments_present);
  EXPECT_FALSE(world.views()[1].dirty);
  EXPECT_EQ(*world.views()[1].segment(MILLPOND_SEGMENT_EXP_AVG), std::byte{0xab});
}

TEST(CpuDevice, moments_only_shards_update_the_parameter_in_place) {
  World world({{8193, true}, {0, true}, {70'000, true}}, {});
  const std::vector<bool> all(3, true);
  for (std::uint64_t step = 1; step <= 3; ++step) world.take_step(step, all);
  expect_as_plain(world, all);
}

// After the first update gaps and padding are zero and an all-zero group has the scale 1, whatever
// was in the place before.
TEST(CpuDevice, first_moments_leave_nothing_of_what_was_there) {
  for (const Storage storage : {Storage::kFp32, Storage::kBf16, Storage::kFp16Scaled,
                                Storage::kFp8E4m3Scaled, Storage::kFp8E5m2Scaled}) {
    World::Settings settings;
    settings.moments = storage;
    World world({{300}, {4096}, {700}}, settings);
    world.take_step(1, {true, false, true});
    const TileView& view = world.views()[0];
    for (const std::uint32_t segment : {MILLPOND_SEGMENT_EXP_AVG, MILLPOND_SEGMENT_EXP_AVG_SQ}) {
      for (std::uint64_t b = 0; b < view.tile->blocks; ++b) {
        const std::uint64_t elements =
            std::min<std::uint64_t>(4096, view.tile->elements - b * 4096);
        const std::byte* block = view.block(segment, b);
        const std::uint64_t payload = elements * item_bytes(storage);
        const std::uint64_t scales = is_scaled(storage) ? elements / 256 * 4 : 0;
        for (std::uint64_t i = payload + scales; i < block_bytes(storage, elements); ++i) {
          ASSERT_EQ(block[i], std::byte{0}) << "padding " << storage_name(storage);
        }
        for (std::uint64_t e = 0; e < elements; ++e) {
          const std::uint64_t in_tile = b * 4096 + e;
          const bool written = in_tile < 300 || (in_tile >= 512 + 4096 && in_tile < 4608 + 700);
          if (written) continue;
          for (std::uint64_t k = 0; k < item_bytes(storage); ++k) {
            ASSERT_EQ(block[e * item_bytes(storage) + k], std::byte{0})
                << storage_name(storage) << " element " << in_tile;
          }
          if (scales == 0 || in_tile < 512 || in_tile >= 512 + 4096) continue;
          float scale;
          std::memcpy(&scale, block + payload + e / 256 * 4, 4);
          ASSERT_EQ(scale, 1.0F);
        }
      }
    }
  }
}

TEST(CpuDevice, mains_come_from_the_model_and_go_back_to_it) {
  World world(kShards, {});
  std::vector<std::uint8_t> chosen(kShards.size(), 1);
  chosen[8] = chosen[9] = 0;  // the host has these
  chosen[5] = 0;
  for (std::size_t i = 0; i < kShards.size(); ++i) {
    for (std::size_t k = 0; k < kShards[i].numel; ++k) {
      world.model[i][k] = static_cast<std::uint16_t>(0x3f00 + (i * 7 + k) % 128);
    }
  }
  world.visit(world.device->begin_fill_main(world.step.shards, chosen, {}));
  for (std::uint32_t i = 0; i < kShards.size(); ++i) {
    if (chosen[i] != 0) {
      for (std::size_t k = 0; k < kShards[i].numel; ++k) {
        const std::uint32_t bits = world.model[i][k] << 16;
        std::memcpy(&world.main[i][k], &bits, 4);
      }
    }
    expect_same(world.stored(MILLPOND_SEGMENT_MAIN, i), world.main[i], "main");
    std::fill(world.model[i].begin(), world.model[i].end(), std::uint16_t{0});
  }
  world.visit(world.device->begin_write_model(world.step.shards, {}));
  for (std::uint32_t i = 0; i < kShards.size(); ++i) {
    if (!kShards[i].model_here) {
      expect_same(world.host().copied[i], world.main[i], "copied");
      continue;
    }
    for (std::size_t k = 0; k < kShards[i].numel; ++k) {
      ASSERT_EQ(world.model[i][k], test::plain_bf16(world.main[i][k]));
    }
  }
  EXPECT_FALSE(world.views()[0].dirty) << "writing the model changes no state";
}

TEST(CpuDevice, a_shard_without_any_source_of_mains_is_refused) {
  World world({{100}, {300, false, false}}, {});
  const std::vector<std::uint8_t> all(2, 1);
  try {
    world.device->begin_fill_main(world.step.shards, all, {});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_ARGUMENT);
    EXPECT_EQ(error.field_name(), "bind_args.shards[1].main");
  }
}

TEST(HostUpdate, the_callback_gives_the_same_bytes_as_the_whole_shard) {
  for (const std::uint64_t tile : {4096, 8192, 1 << 18}) {
    World::Settings settings;
    settings.variant = Variant::kHost;
    settings.tile_elements = tile;
    settings.block_elements = tile > 8192 ? 1 << 17 : 4096;
    std::vector<ShardCase> shards = kShards;
    shards.push_back({200'003});
    World world(shards, settings);
    world.host().hyper.grad_scale = 3;
    const std::vector<bool> all(shards.size(), true);
    for (std::uint64_t step = 1; step <= 3; ++step) world.take_step(step, all);
    expect_as_plain(world, all);
    EXPECT_GT(world.host().updates, 0U);
    EXPECT_LE(world.host().largest_piece, 65'536U);
    EXPECT_FALSE(world.host().odd_begin);
  }
}

TEST(HostUpdate, moments_only_and_moments_of_16_bits) {
  World::Settings settings;
  settings.variant = Variant::kHost;
  World own({{8193, true}, {70'000, true}}, settings);
  own.take_step(1, {true, true});
  own.take_step(2, {true, true});
  expect_as_plain(own, {true, true});

  // In 16 bits the callback's pieces and the kernels store the same.
  settings.moments = Storage::kFp16Scaled;
  World host({{5000}, {300}}, settings);
  settings.variant = Variant::kTorchCpuFused;
  World kernel({{5000}, {300}}, settings);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    host.take_step(step, {true, step != 2});
    kernel.take_step(step, {true, step != 2});
  }
  for (std::size_t t = 0; t < host.views().size(); ++t) {
    const TileView& a = host.views()[t];
    EXPECT_EQ(std::memcmp(a.memory, kernel.views()[t].memory, a.tile->total_bytes), 0);
  }
}

TEST(HostUpdate, a_failing_callback_is_an_error) {
  World::Settings settings;
  settings.variant = Variant::kHost;
  World world({{300}}, settings);
  world.host().answer_with = MILLPOND_E_MEMORY;
  EXPECT_THROW(world.take_step(1, {true}), Error);
}

TEST(CpuDevice, what_cannot_be_computed_here_is_refused) {
  World::Settings settings;
  settings.variant = Variant::kTorchCudaFused2;
  EXPECT_THROW(World({{300}}, settings), Error);

  settings.variant = Variant::kTeFusedAdam;
  World te({{300}}, settings);
  te.host().hyper.decoupled = false;
  EXPECT_THROW(te.take_step(1, {true}), Error) << "L2 is not proven for this formula";
}

}  // namespace
}  // namespace millpond::plugin
