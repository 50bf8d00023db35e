// What a host declares at bind: identity and features (a HostProfile, handshake.proto) joined with
// the pointers of its parameters.
#ifndef MILLPOND_CLIENT_BINDING_H_
#define MILLPOND_CLIENT_BINDING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millpond/host.h"

namespace millpond::v1 {
class HostProfile;
class Shard;
}  // namespace millpond::v1

namespace millpond::client {

struct HostIdentity {
  std::string framework;
  std::string framework_version;
  std::string adapter;
  std::string adapter_version;
  std::string optimizer_class;  // as the framework prints it
  std::string arithmetic;       // "torch_cpu_fused/1", ...
};

enum class Counter : std::uint8_t { kPerParameter, kPerGroup };

// A whole parameter that this process owns; its kind follows from the model's dtype.
struct Parameter {
  std::string key;
  std::vector<std::uint64_t> shape;
  std::uint64_t group = 0;
  millpond_tensor model;
  millpond_tensor grad;       // data NULL: every step passes its address
  millpond_tensor main = {};  // optional fp32 values to begin with
  std::uint64_t host_bucket = 0;
};

class Binding {
 public:
  explicit Binding(const HostIdentity& host);
  Binding(Binding&&) noexcept;
  Binding& operator=(Binding&&) noexcept;
  ~Binding();

  // A feature that the host evaluated (millpond/features.h); `detail` is the option behind it.
  void feature(std::string_view name, bool active, std::string_view detail = {});
  // The host's promise that none of the features that it has not named, of those known in ABI minor
  // `minor` (Plugin::minor), can be active in it. For programs whose optimizer is all their own.
  void other_features_inactive(std::uint32_t minor);

  void axis(std::string_view name, std::uint32_t rank, std::uint32_t size);
  void config_epoch(std::uint64_t epoch);

  // Returns the group's id, counted from 0.
  std::uint64_t add_group(std::string_view key, Counter counter = Counter::kPerParameter);

  // Both return the shard's index, counted from 0, which is also its id unless the general form
  // names another.
  std::uint64_t add(const Parameter& parameter);
  std::uint64_t add_shard(const v1::Shard& shard, const millpond_tensor& model,
                          const millpond_tensor& grad, const millpond_tensor& main = {});

  // For whatever has no function here.
  v1::HostProfile& profile() { return *profile_; }
  const v1::HostProfile& profile() const { return *profile_; }
  const std::vector<millpond_shard_pointers>& pointers() const { return pointers_; }
  void stream(millpond_stream stream) { stream_ = stream; }
  millpond_stream stream() const { return stream_; }

 private:
  std::unique_ptr<v1::HostProfile> profile_;
  std::vector<millpond_shard_pointers> pointers_;
  millpond_stream stream_ = {MILLPOND_DEVICE_CPU, 0, 0};
};

// A dense run of host memory.
millpond_tensor cpu_tensor(void* data, std::uint64_t numel, millpond_dtype dtype);

// What the plugin planned, from the BindReport; meanings in handshake.proto.
struct Plan {
  struct Directory {
    std::string path;
    std::uint64_t bytes = 0;
    bool direct = false;
  };
  std::uint64_t shards = 0, elements = 0, buckets = 0, tiles = 0;
  std::uint64_t tile_elements = 0, block_elements = 0, tier_tiles = 0, shards_kept = 0;
  std::vector<Directory> directories;
  std::uint64_t host_bytes = 0, device_bytes = 0;
  std::string engine, engine_reason;
  std::uint64_t read_bytes_per_step = 0, write_bytes_per_step = 0;
  double drive_bytes_per_second = 0, expected_seconds_per_step = 0;
  std::string drive_source;
};

}  // namespace millpond::client

#endif  // MILLPOND_CLIENT_BINDING_H_
