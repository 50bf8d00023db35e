// One bind while it is under way: everything is made beside the store's old state and becomes the
// store's at the end, or goes.
#ifndef MILLPOND_PLUGIN_STORE_BINDING_H_
#define MILLPOND_PLUGIN_STORE_BINDING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "plugin/device/work.h"
#include "plugin/guard/profile.h"
#include "plugin/store/store.h"

namespace millpond::plugin {

class Binding {
 public:
  // The profile is accepted and the pointers are checked.
  Binding(Store& store, Profile profile, const std::vector<millpond_shard_pointers>& pointers,
          millpond_stream stream);
  // Gives up what run() did not hand over.
  ~Binding();
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

  // Plans, reserves, fills, and makes the store bound. Throws with the store's old state untouched.
  void run();

 private:
  LayoutOptions layout_options() const;
  void match();        // what is taken over
  bool reuse_files();  // nothing moves: the old state serves as it is
  void make_files();
  void prepare_work();  // shards, device, arrays of a step
  void make_device();
  void check_addresses() const;
  void fill();  // fill.cc
  void fill_bucket(std::uint32_t bucket, class Carrier* carrier);
  void visit(const std::vector<std::uint32_t>& tiles, Access access, TileWork& work);
  void release_mains(const std::vector<std::uint32_t>& shards);
  void carry_counters();
  std::string make_report() const;  // bind_report.cc
  void hand_over();

  Store& store_;
  Runtime& runtime_;
  Profile profile_;
  const std::vector<millpond_shard_pointers>& pointers_;
  millpond_stream stream_;
  kernels::Variant variant_ = kernels::Variant::kHost;
  Plan plan_;
  std::vector<std::uint32_t> source_;  // by shard: index in the old state, or kFresh
  std::uint64_t kept_ = 0;
  bool reused_ = false;
  std::unique_ptr<StreamedState> fresh_;
  std::vector<std::uint64_t> steps_;
  StepWork work_;
  std::unique_ptr<Device> device_;
  std::uint64_t filled_bytes_ = 0;
  std::vector<std::uint8_t> released_;  // by shard: the host was told
};

// Expected traffic of a step in a steady state: K of a store's tiles are in the tier when a step
// begins, the order of tiles alternates.
struct StepTraffic {
  std::uint64_t read_bytes = 0;
  std::uint64_t write_bytes = 0;
};
StepTraffic expected_traffic(const Plan& plan, std::uint64_t tier_tiles);

kernels::Element element_of(millpond_dtype dtype);
bool known_element(millpond_dtype dtype);

HomeDevice home_of(const Profile& profile);
// Throws Error(E_ARGUMENT): another device's stream, a handle where there are no streams, or none
// where there are.
void check_stream(const millpond_stream& stream, HomeDevice home, const char* field,
                  const char* operation);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_BINDING_H_
