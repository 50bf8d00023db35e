// Owners, typed arguments and exceptions over the real plugin.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "millpond/client/plugin.h"
#include "millpond/client/plugin_error.h"

namespace millpond::client {
namespace {

namespace fs = std::filesystem;

class Directory {
 public:
  Directory() {
    std::string name = (fs::temp_directory_path() / "millpond_client_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }
  std::string options(const std::string& more = "") const {
    return "{\"scratch\": \"" + path_.string() + "\"" + more + "}";
  }

 private:
  fs::path path_;
};

const HostIdentity kHost = {"test", "1", "test", "1", "AdamW", "torch_cpu_fused/1"};

// Two bf16 parameters in one group.
struct Host {
  std::vector<std::uint16_t> a = std::vector<std::uint16_t>(1000, 0x3f80);  // 1.0
  std::vector<std::uint16_t> b = std::vector<std::uint16_t>(10, 0x4000);    // 2.0
  std::vector<float> a_grad = std::vector<float>(1000, 0.5F);
  std::vector<float> b_grad = std::vector<float>(10, -0.25F);
  Plugin plugin = Plugin::open(MILLPOND_TEST_PLUGIN);

  Binding binding(bool active = false, const HostIdentity& identity = kHost) {
    Binding binding(identity);
    if (active) binding.feature("param.fp8", true, "fp8 = true");
    binding.other_features_inactive(plugin.minor());
    const std::uint64_t group = binding.add_group("all");
    const auto add = [&](const char* key, auto& value, auto& grad) {
      binding.add({.key = key,
                   .shape = {value.size()},
                   .group = group,
                   .model = cpu_tensor(value.data(), value.size(), MILLPOND_DTYPE_BF16),
                   .grad = cpu_tensor(grad.data(), grad.size(), MILLPOND_DTYPE_FP32)});
    };
    add("a", a, a_grad);
    add("b", b, b_grad);
    return binding;
  }
};

const std::array<millpond_group_step, 1> kGroups = {
    millpond_group_step{0, 0.125, 0.9, 0.999, 1e-8, 0.0, 1, 0}};

TEST(Store, binds_steps_and_reports) {
  const Directory directory;
  Host host;
  Runtime runtime = host.plugin.create_runtime(directory.options());
  Store store = runtime.create_store("rank00000/opt0_0");
  const Plan plan = store.bind(host.binding());
  EXPECT_EQ(plan.shards, 2U);
  EXPECT_EQ(plan.elements, 1010U);
  EXPECT_GE(plan.tiles, 1U);
  ASSERT_EQ(plan.directories.size(), 1U);
  EXPECT_FALSE(plan.engine.empty());

  EXPECT_EQ(store.step({.groups = kGroups}), Outcome::kDone);
  runtime.agree();
  EXPECT_EQ(store.last_step().outcome, MILLPOND_STEP_DONE);
  EXPECT_EQ(store.last_step().step, 1U);
  EXPECT_EQ(store.plan().shards, 2U);
  EXPECT_EQ(store.shard_step(0), 1U);
  // Adam's first step moves by the learning rate against the gradient's sign.
  std::vector<float> main(1000);
  store.read_state(0, Segment::kMain, 0, main);
  EXPECT_NEAR(main[0], 0.875F, 1e-6);
  EXPECT_EQ(host.a[0], 0x3f60);  // 0.875
  EXPECT_EQ(host.b[9], 0x4008);  // 2.125
}

TEST(Store, found_inf_skips) {
  const Directory directory;
  Host host;
  Runtime runtime = host.plugin.create_runtime(directory.options());
  Store store = runtime.create_store("s");
  store.bind(host.binding());
  EXPECT_EQ(store.step({.groups = kGroups, .found_inf = true}), Outcome::kSkipped);
  EXPECT_EQ(host.a[0], 0x3f80);
  EXPECT_EQ(store.shard_step(0), 0U);
}

TEST(Store, shards_without_a_gradient_and_moved_gradients) {
  const Directory directory;
  Host host;
  Runtime runtime = host.plugin.create_runtime(directory.options());
  Store store = runtime.create_store("s");
  store.bind(host.binding());
  const std::vector<float> other(1000, -0.5F);
  const std::array<const void*, 2> grads = {other.data(), nullptr};
  const std::array<std::uint8_t, 2> has_grad = {1, 0};
  store.step({.groups = kGroups, .grads = grads, .has_grad = has_grad});
  EXPECT_EQ(host.a[0], 0x3f90);  // 1.125: the gradient's new place was read
  EXPECT_EQ(host.b[0], 0x4000);
  EXPECT_EQ(store.shard_step(1), 0U);
}

TEST(Store, arrays_of_the_wrong_length_never_reach_the_plugin) {
  const Directory directory;
  Host host;
  Runtime runtime = host.plugin.create_runtime(directory.options());
  Store store = runtime.create_store("s");
  store.bind(host.binding());
  const std::array<std::uint8_t, 1> has_grad = {1};
  try {
    store.step({.groups = kGroups, .has_grad = has_grad});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_ARGUMENT);
    EXPECT_EQ(error.field_name(), "has_grad");
    EXPECT_EQ(error.wanted(), 2U);
    EXPECT_EQ(error.got(), 1U);
  }
}

TEST(Store, refused_bind_lists_every_reason) {
  const Directory directory;
  Host host;
  Runtime runtime = host.plugin.create_runtime(directory.options());
  Store store = runtime.create_store("s");
  HostIdentity identity = kHost;
  identity.arithmetic = "abacus/1";
  try {
    store.bind(host.binding(true, identity));
    FAIL() << "bound";
  } catch (const BindRefused& refused) {
    EXPECT_EQ(refused.code(), MILLPOND_E_REFUSED);
    EXPECT_EQ(refused.refusals().size(), 2U) << refused.what();
    EXPECT_NE(std::string(refused.what()).find("param.fp8"), std::string::npos);
    EXPECT_NE(std::string(refused.what()).find("abacus/1"), std::string::npos);
  }
  EXPECT_THROW(store.step({.groups = kGroups}), PluginError);
  EXPECT_NO_THROW(store.bind(host.binding()));
}

TEST(Store, feature_left_out_is_refused) {
  const Directory directory;
  Host host;
  Runtime runtime = host.plugin.create_runtime(directory.options());
  Store store = runtime.create_store("s");
  Binding binding(kHost);
  EXPECT_THROW(store.bind(binding), BindRefused);
}

TEST(Store, options_in_the_plugins_words) {
  const Directory directory;
  const Plugin plugin = Plugin::open(MILLPOND_TEST_PLUGIN);
  try {
    plugin.create_runtime(directory.options(", \"tile_element\": 4096"));
    FAIL();
  } catch (const PluginError& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_OPTION);
    EXPECT_EQ(error.field_name(), "options.tile_element");
    EXPECT_NE(std::string(error.what()).find("tile_elements"), std::string::npos);
  }
}

TEST(Store, saves_and_loads) {
  const Directory directory;
  Host host;
  Runtime runtime = host.plugin.create_runtime(directory.options());
  Store store = runtime.create_store("s");
  store.bind(host.binding());
  store.step({.groups = kGroups});
  store.save(directory.path() / "save");
  const std::vector<std::uint16_t> saved = host.a;
  store.step({.groups = kGroups});
  EXPECT_NE(host.a, saved);
  store.load(directory.path() / "save");
  EXPECT_EQ(host.a, saved);
  EXPECT_EQ(store.shard_step(0), 1U);
  try {
    store.load(directory.path() / "nothing");
    FAIL();
  } catch (const PluginError& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_MISSING) << error.what();
  }
  EXPECT_EQ(host.a, saved);
}

TEST(Store, state_round_trip) {
  const Directory directory;
  Host host;
  Runtime runtime = host.plugin.create_runtime(directory.options());
  Store store = runtime.create_store("s");
  store.bind(host.binding());
  const std::vector<float> values = {1.5F, -2.5F, 3.25F};
  store.write_state(0, Segment::kExpAvg, 500, values);
  store.set_shard_step(0, 41);
  std::vector<float> back(3);
  store.read_state(0, Segment::kExpAvg, 500, back);
  EXPECT_EQ(back, values);
  EXPECT_EQ(store.shard_step(0), 41U);
}

TEST(Owners, move_and_close) {
  const Directory directory;
  Host host;
  Runtime runtime = host.plugin.create_runtime(directory.options());
  Store first = runtime.create_store("one");
  Store moved = std::move(first);
  EXPECT_EQ(first.handle(), nullptr);
  EXPECT_THROW(first.bind(host.binding()), Error);
  moved.bind(host.binding());
  moved = runtime.create_store("two");  // "one" is closed: its name is free
  EXPECT_NO_THROW(runtime.create_store("one"));
  moved.close();
  moved.close();
  EXPECT_EQ(moved.handle(), nullptr);
}

TEST(Owners, stores_end_with_their_runtime) {
  const Directory directory;
  Host host;
  Runtime runtime = host.plugin.create_runtime(directory.options());
  Store store = runtime.create_store("s");
  store.bind(host.binding());
  runtime.close();
  EXPECT_EQ(store.handle(), nullptr);
  EXPECT_THROW(store.step({.groups = kGroups}), Error);
  EXPECT_THROW(runtime.figures(), Error);
  runtime.close();
}

TEST(Callbacks, log_and_progress_come_on_the_calling_thread) {
  const Directory directory;
  Host host;
  const std::thread::id here = std::this_thread::get_id();
  std::size_t lines = 0, beats = 0, elsewhere = 0;
  Callbacks callbacks;
  callbacks.log = [&](std::uint32_t, std::string_view line) {
    lines += line.empty() ? 0 : 1;
    elsewhere += std::this_thread::get_id() == here ? 0 : 1;
  };
  callbacks.progress = [&](std::string_view, std::uint64_t done, std::uint64_t total) {
    beats += done <= total ? 1 : 0;
    elsewhere += std::this_thread::get_id() == here ? 0 : 1;
    return true;
  };
  Runtime runtime = host.plugin.create_runtime(directory.options(), callbacks);
  Store store = runtime.create_store("s");
  store.bind(host.binding());
  store.step({.groups = kGroups});
  EXPECT_GT(lines, 0U);
  EXPECT_GT(beats, 0U);
  EXPECT_EQ(elsewhere, 0U);
}

TEST(Callbacks, progress_can_cancel) {
  const Directory directory;
  Host host;
  Callbacks callbacks;
  callbacks.progress = [](std::string_view, std::uint64_t, std::uint64_t) { return false; };
  Runtime runtime = host.plugin.create_runtime(directory.options(), callbacks);
  Store store = runtime.create_store("s");
  try {
    store.bind(host.binding());
    FAIL();
  } catch (const PluginError& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_CANCELLED) << error.what();
  }
}

TEST(Callbacks, the_hosts_own_exception_comes_back) {
  const Directory directory;
  Host host;
  HostIdentity identity = kHost;
  identity.arithmetic = "host/1";
  Callbacks callbacks;
  callbacks.update = [](const millpond_update_piece&) { throw std::domain_error("no Adam today"); };
  Runtime runtime = host.plugin.create_runtime(directory.options(), callbacks);
  Store store = runtime.create_store("s");
  store.bind(host.binding(false, identity));
  try {
    store.step({.groups = kGroups});
    FAIL();
  } catch (const std::domain_error& error) {
    EXPECT_STREQ(error.what(), "no Adam today");
  }
  // The exception is told once: what follows speaks for itself.
  EXPECT_THROW(store.step({.groups = kGroups}), PluginError);
}

TEST(Callbacks, the_hosts_own_adam_runs) {
  const Directory directory;
  Host host;
  HostIdentity identity = kHost;
  identity.arithmetic = "host/1";
  Callbacks callbacks;
  callbacks.update = [](const millpond_update_piece& piece) {
    for (std::uint64_t i = 0; i < piece.count; ++i) piece.main[i] -= piece.grad[i];
  };
  Runtime runtime = host.plugin.create_runtime(directory.options(), callbacks);
  Store store = runtime.create_store("s");
  store.bind(host.binding(false, identity));
  store.step({.groups = kGroups});
  EXPECT_EQ(host.a[999], 0x3f00);  // 1 - 0.5
  EXPECT_EQ(host.b[0], 0x4010);    // 2 + 0.25
}

TEST(Binding, shape_and_tensor_must_agree) {
  Host host;
  Binding binding(kHost);
  const millpond_tensor model = cpu_tensor(host.b.data(), 10, MILLPOND_DTYPE_BF16);
  EXPECT_THROW(binding.add({"b", {3, 4}, 0, model, {}}), Error);
  EXPECT_THROW(binding.add({"b", {1ull << 33, 1ull << 33}, 0, model, {}}), Error);
}

}  // namespace
}  // namespace millpond::client
