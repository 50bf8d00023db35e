// The profile against the C arguments: the offending field is named.
#include <gtest/gtest.h>

#include <functional>

#include "millpond/error.hpp"
#include "plugin/guard/profile.h"
#include "tests/guard/profiles.h"

namespace millpond::tests {
namespace {

using Pointers = std::vector<millpond_shard_pointers>;

class CheckPointers : public testing::Test {
 protected:
  CheckPointers() {
    pointers_.resize(profile_.shards.size());
    for (std::size_t i = 0; i < pointers_.size(); ++i) {
      const plugin::Shard& shard = profile_.shards[i];
      pointers_[i].shard_id = shard.id;
      pointers_[i].model = tensor(3 * i, shard.numel(), shard.model_dtype);
      pointers_[i].grad = tensor(3 * i + 1, shard.numel(), shard.grad_dtype);
      if (shard.kind == plugin::ShardKind::kMainAndMoments)
        pointers_[i].main = tensor(3 * i + 2, shard.numel(), MILLPOND_DTYPE_FP32);
    }
  }

  millpond_tensor tensor(std::size_t place, std::uint64_t numel, millpond_dtype dtype) {
    millpond_tensor t{};
    t.data = memory_ + 64 * place;
    t.numel = numel;
    t.device_type = MILLPOND_DEVICE_CPU;
    t.dtype = dtype;
    return t;
  }

  // The field of the refusal; empty when accepted.
  std::string field_of(const Pointers& pointers, bool has_copy_main = false) const {
    try {
      plugin::check_pointers(profile_, pointers, has_copy_main);
      return {};
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), MILLPOND_E_ARGUMENT);
      EXPECT_FALSE(error.reason().empty());
      return error.field_name();
    }
  }
  std::string field_after(const std::function<void(Pointers&)>& change,
                          bool has_copy_main = false) const {
    Pointers changed = pointers_;
    change(changed);
    return field_of(changed, has_copy_main);
  }

  plugin::Profile profile_ = read(good_profile());
  Pointers pointers_;
  alignas(64) float memory_[2048] = {};
};

TEST_F(CheckPointers, accepts_what_agrees) {
  EXPECT_EQ(field_of(pointers_), "");
  // Gradients and mains may be absent.
  EXPECT_EQ(field_after([](Pointers& p) {
              for (auto& shard : p) shard.grad = {}, shard.main = {};
            }),
            "");
  // An address may be split into pointer and offset.
  EXPECT_EQ(field_after([](Pointers& p) { p[3].model.byte_offset = 4; }), "");
}

TEST_F(CheckPointers, names_the_field_that_disagrees) {
  const auto field = [this](auto change) {
    return field_after([&](Pointers& p) { change(p[3]); });
  };
  using Shard = millpond_shard_pointers&;
  EXPECT_EQ(field([](Shard s) { s.shard_id = 1; }), "bind_args.shards[3].shard_id");
  EXPECT_EQ(field([](Shard s) { s.model.numel = 23; }), "bind_args.shards[3].model.numel");
  EXPECT_EQ(field([](Shard s) { s.model.numel = 0; }), "bind_args.shards[3].model.numel");
  EXPECT_EQ(field([](Shard s) { s.model.dtype = MILLPOND_DTYPE_BF16; }),
            "bind_args.shards[3].model.dtype");
  EXPECT_EQ(field([](Shard s) { s.model.device_type = MILLPOND_DEVICE_CUDA; }),
            "bind_args.shards[3].model.device_type");
  EXPECT_EQ(field([](Shard s) { s.model.device_type = MILLPOND_DEVICE_CUDA_HOST; }),
            "bind_args.shards[3].model.device_type");
  EXPECT_EQ(field([](Shard s) { s.model.device_id = 1; }), "bind_args.shards[3].model.device_id");
  EXPECT_EQ(field([](Shard s) { s.model.reserved = 1; }), "bind_args.shards[3].model.reserved");
  EXPECT_EQ(field([](Shard s) { s.model.data = nullptr; }), "bind_args.shards[3].model.data");
  EXPECT_EQ(field([](Shard s) { s.model.byte_offset = 2; }), "bind_args.shards[3].model.data");
  EXPECT_EQ(field([](Shard s) { s.model.byte_offset = UINT64_MAX - 3; }),
            "bind_args.shards[3].model.byte_offset");
  EXPECT_EQ(field([](Shard s) {
              s.model.byte_offset =
                  (UINT64_MAX - reinterpret_cast<std::uintptr_t>(s.model.data)) & ~3ull;
            }),
            "bind_args.shards[3].model.numel");
  EXPECT_EQ(field([](Shard s) { s.grad.numel = 1; }), "bind_args.shards[3].grad.numel");
  EXPECT_EQ(field([](Shard s) { s.grad.dtype = MILLPOND_DTYPE_NONE; }),
            "bind_args.shards[3].grad.dtype");
  EXPECT_EQ(field([](Shard s) { s.grad.data = nullptr, s.grad.byte_offset = 4; }),
            "bind_args.shards[3].grad.data");
  EXPECT_EQ(field([this](Shard s) { s.main = tensor(20, 24, MILLPOND_DTYPE_FP32); }),
            "bind_args.shards[3].main.data")
      << "moments only";
  EXPECT_EQ(field_after([](Pointers& p) { p[0].main.dtype = MILLPOND_DTYPE_BF16; }),
            "bind_args.shards[0].main.dtype");
  EXPECT_EQ(field_after([](Pointers& p) { p[0].main.numel = 11; }),
            "bind_args.shards[0].main.numel");
}

TEST_F(CheckPointers, counts_and_order_are_the_profiles) {
  EXPECT_EQ(field_after([](Pointers& p) { p.pop_back(); }), "bind_args.shards.count");
  EXPECT_EQ(field_after([](Pointers& p) { p.push_back(p[0]); }), "bind_args.shards.count");
  EXPECT_EQ(field_after([](Pointers& p) { std::swap(p[1], p[2]); }),
            "bind_args.shards[1].shard_id");
}

TEST_F(CheckPointers, a_model_may_be_absent_where_the_host_copies_mains) {
  const auto without = [](std::size_t i) { return [i](Pointers& p) { p[i].model = {}; }; };
  EXPECT_EQ(field_after(without(2), true), "");
  EXPECT_EQ(field_after(without(2), false), "bind_args.shards[2].model.data");
  EXPECT_EQ(field_after(without(3), true), "bind_args.shards[3].model.data")
      << "an fp32 parameter is its own main";
}

TEST_F(CheckPointers, B41_empty_shards_need_no_memory) {
  profile_.shards[1].flat_end = profile_.shards[1].flat_begin;
  EXPECT_EQ(field_after([](Pointers& p) { p[1].model = p[1].grad = p[1].main = {}; }), "");
  EXPECT_EQ(field_of(pointers_), "bind_args.shards[1].model.numel");
}

TEST_F(CheckPointers, two_parameters_in_one_memory_are_refused) {
  EXPECT_EQ(field_after([](Pointers& p) { p[2].model.data = p[0].model.data; }),
            "bind_args.shards[2].model.data");
  EXPECT_EQ(field_after([](Pointers& p) {
              p[2].model.data = static_cast<char*>(p[0].model.data) + 18;  // its last element
            }),
            "bind_args.shards[2].model.data");
  EXPECT_EQ(field_after([](Pointers& p) {
              p[2].model.data = static_cast<char*>(p[0].model.data) + 20;  // just behind it
            }),
            "");
}

}  // namespace
}  // namespace millpond::tests
