// A whole host: fits y = 2x + 1 with AdamW whose state is streamed through files, saves it, and
// goes on in a second runtime that loads what the first one saved. The parameters are bf16, the
// gradients fp32.
//
//   embed SCRATCH [PLUGIN]      SCRATCH: an existing directory on a node-local drive
#include <bit>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "millpond/client/plugin.h"

namespace mp = millpond::client;

namespace {

float widen(std::uint16_t bf16) {
  const std::uint32_t bits = static_cast<std::uint32_t>(bf16) << 16;
  return std::bit_cast<float>(bits);
}

struct Line {
  std::vector<std::uint16_t> slope = {0}, offset = {0};  // bf16
  std::vector<float> slope_grad = {0.0F}, offset_grad = {0.0F};

  // Mean squared error over a few points, and its gradients.
  float error() {
    float sum = slope_grad[0] = offset_grad[0] = 0.0F;
    for (int i = -8; i <= 8; ++i) {
      const float x = static_cast<float>(i) / 8.0F;
      const float miss = widen(slope[0]) * x + widen(offset[0]) - (2.0F * x + 1.0F);
      sum += miss * miss / 17.0F;
      slope_grad[0] += 2.0F * miss * x / 17.0F;
      offset_grad[0] += 2.0F * miss / 17.0F;
    }
    return sum;
  }
};

mp::Store bind(mp::Runtime& runtime, const mp::Plugin& plugin, Line& line) {
  mp::Binding binding({"embed", "1", "embed", "1", "AdamW", "torch_cpu_fused/1"});
  binding.other_features_inactive(plugin.minor());  // this program has none of them
  const std::uint64_t group = binding.add_group("all");
  const auto add = [&](const char* key, auto& value, auto& grad) {
    binding.add({key,
                 {1},
                 group,
                 mp::cpu_tensor(value.data(), 1, MILLPOND_DTYPE_BF16),
                 mp::cpu_tensor(grad.data(), 1, MILLPOND_DTYPE_FP32)});
  };
  add("slope", line.slope, line.slope_grad);
  add("offset", line.offset, line.offset_grad);
  mp::Store store = runtime.create_store("rank00000/opt0_0");
  store.bind(binding);
  return store;
}

float train(mp::Store& store, Line& line, int steps) {
  const std::vector<millpond_group_step> groups = {{0, 0.05, 0.9, 0.99, 1e-8, 0.0, 1, 0}};
  for (int i = 0; i < steps; ++i) {
    line.error();
    store.step({.groups = groups});
  }
  return line.error();
}

}  // namespace

int main(int count, char** values) try {
  if (count < 2) return std::fputs("usage: embed SCRATCH [PLUGIN]\n", stderr), 2;
  const std::filesystem::path scratch = values[1];
  const mp::Plugin plugin = mp::Plugin::open(count > 2 ? values[2] : PLUGIN_PATH);
  std::printf("%s\n", plugin.description().c_str());
  const std::string options = "{\"scratch\": \"" + scratch.string() + "\"}";

  Line first, second;
  mp::Runtime runtime = plugin.create_runtime(options);
  mp::Store store = bind(runtime, plugin, first);
  std::printf("error before: %.5f\n", first.error());
  std::printf("after 100 steps: %.5f\n", train(store, first, 100));
  store.save(scratch / "checkpoint");

  mp::Runtime other_runtime = plugin.create_runtime(options);
  mp::Store loaded = bind(other_runtime, plugin, second);
  loaded.load(scratch / "checkpoint");
  std::printf("100 more: %.7f\n", train(store, first, 100));
  std::printf("loaded, and 100 more: %.7f\n", train(loaded, second, 100));
  const bool same = first.slope == second.slope && first.offset == second.offset;
  std::printf("y = %.3f x + %.3f, %s\n", widen(first.slope[0]), widen(first.offset[0]),
              same ? "the loaded run went on with the same bits" : "THE LOADED RUN DIFFERS");
  return same && first.error() < 1e-3F ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "embed: %s\n", error.what());
  return 1;
}
