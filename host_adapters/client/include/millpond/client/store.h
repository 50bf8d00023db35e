// A store: one streamed optimizer. Move-only owner. States and their meaning: millpond/plugin.h.
#ifndef MILLPOND_CLIENT_STORE_H_
#define MILLPOND_CLIENT_STORE_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millpond/checkpoint.h"
#include "millpond/client/binding.h"
#include "millpond/plugin.h"
#include "millpond/report.h"

namespace millpond::client {

class Runtime;
struct RuntimeCore;

// One optimizer step. Arrays go by shard index, in the order in which shards were added to the
// Binding; an empty one means what the ABI says of NULL.
struct StepRequest {
  std::span<const millpond_group_step> groups = {};  // every group once
  std::span<const void* const> grads = {};           // where they moved since bind
  std::span<const millpond_dtype> dtypes = {};       // of the gradients, where not the profile's
  std::span<const std::uint8_t> has_grad = {};       // 0: the shard is untouched in this step
  std::uint64_t config_epoch = 0;
  float grad_scale = 1.0F;  // gradients are divided by it
  bool found_inf = false;   // nothing moves
  millpond_stream stream = {MILLPOND_DEVICE_CPU, 0, 0};
};

enum class Outcome : std::uint8_t { kDone, kSkipped };

enum class Segment : std::uint32_t {
  kMain = MILLPOND_SEGMENT_MAIN,
  kExpAvg = MILLPOND_SEGMENT_EXP_AVG,
  kExpAvgSq = MILLPOND_SEGMENT_EXP_AVG_SQ,
};

struct IoRequest {
  std::filesystem::path path;
  std::string save_id;  // of Runtime::save_begin; empty with the COMMIT flag, or to load the newest
  std::uint64_t flags = 0;  // MILLPOND_IO_*
  millpond_stream stream = {MILLPOND_DEVICE_CPU, 0, 0};
};

class Store {
 public:
  // Throws BindRefused with every reason where the guard said no; the store is then unbound.
  // Model and gradient tensors stay borrowed until unbind, the next bind, or the store's end.
  Plan bind(const Binding& binding);
  void unbind();

  Outcome step(const StepRequest& request);

  // mains := model parameters, of all shards or of those named.
  void refresh_main(std::span<const std::uint64_t> shard_ids = {},
                    millpond_stream stream = {MILLPOND_DEVICE_CPU, 0, 0});

  // A whole checkpoint of a host with one rank and one store: begun, written and committed on
  // return.
  void save(const std::filesystem::path& path);
  // The newest committed checkpoint under `path`, verified, then installed; model parameters too.
  void load(const std::filesystem::path& path);
  // The general forms, for several stores or ranks, background saves, conversions.
  void save_to(const IoRequest& request);
  void load_from(const IoRequest& request);

  millpond_save_progress poll_save() const;
  void wait_save();
  void cancel_save();

  millpond_step_figures last_step() const;
  millpond_plan_figures plan() const;

  // Ranges of a shard's segment as fp32, and its step counter.
  void read_state(std::uint64_t shard_id, Segment segment, std::uint64_t begin,
                  std::span<float> values) const;
  void write_state(std::uint64_t shard_id, Segment segment, std::uint64_t begin,
                   std::span<const float> values);
  std::uint64_t shard_step(std::uint64_t shard_id) const;
  void set_shard_step(std::uint64_t shard_id, std::uint64_t step);

  // Destroys the store and throws what the destructor has to swallow. A second call does nothing.
  void close();

  Store(Store&& other) noexcept;
  Store& operator=(Store&& other) noexcept;
  ~Store();

  // NULL after close(), or after the runtime's end.
  millpond_store* handle() const;

 private:
  friend class Runtime;
  Store(std::shared_ptr<RuntimeCore> core, millpond_store* handle);
  millpond_store* live() const;

  std::shared_ptr<RuntimeCore> core_;
  millpond_store* handle_;
  std::uint64_t bound_shards_ = 0;
};

}  // namespace millpond::client

#endif  // MILLPOND_CLIENT_STORE_H_
