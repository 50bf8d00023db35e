// What is done on tiles, device by device: the update of a step, building mains, writing
// parameters. A device gives TileWork objects to the pipeline and knows nothing of files or the
// tier. Objects are made at bind and reused: begin() only fills what was reserved.
#ifndef MILLPOND_PLUGIN_DEVICE_WORK_H_
#define MILLPOND_PLUGIN_DEVICE_WORK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/adam.h"
#include "millpond/host.h"
#include "millpond/report.h"
#include "plugin/core/host.h"
#include "plugin/core/thread_pool.h"
#include "plugin/pipeline/pipeline.h"

namespace millpond::plugin {

// One shard as work sees it; fixed from bind to bind but for what a step brings.
struct ShardWork {
  std::uint64_t id = 0;
  std::uint64_t group_id = 0;
  std::uint64_t numel = 0;
  void* model = nullptr;              // NULL: empty, or the host copies mains itself
  const float* given_main = nullptr;  // at bind only: mains to begin with
  kernels::Element model_element = kernels::Element::kFp32;
  bool moments_only = false;
  // this step
  const void* grad = nullptr;
  kernels::Element grad_element = kernels::Element::kFp32;
  bool active = false;        // has a gradient in this step
  std::uint32_t scalars = 0;  // index into StepWork::scalars
};

// One step. Shards of one group may differ in their step counter, hence scalars by (group, step).
struct StepWork {
  std::vector<ShardWork> shards;       // by shard index
  std::vector<kernels::Hyper> hypers;  // as scalars
  std::vector<kernels::Scalars> scalars;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::uint64_t device_bytes() const = 0;  // staging held now

  // The update of a step: Access::kUpdate. Marks the tile dirty and its moments present; a piece
  // whose shard is not active keeps its bytes, and gets zero moments when the rest of the tile
  // makes moments exist. Orders itself after `stream`; finish_step orders `stream` after the last
  // parameter write.
  virtual TileWork& begin_step(const StepWork& step, millpond_stream stream) = 0;
  virtual void finish_step(millpond_stream stream) = 0;

  // main := given_main, else the model widened, for shards with chosen[shard]; Access::kOverwrite
  // at bind (all of the shards of a tile chosen) or kUpdate at refresh. Moments are not touched.
  virtual TileWork& begin_fill_main(std::span<const ShardWork> shards,
                                    std::span<const std::uint8_t> chosen,
                                    millpond_stream stream) = 0;
  // model := main rounded (or the host's copy_main_to_model); Access::kRead.
  virtual TileWork& begin_write_model(std::span<const ShardWork> shards,
                                      millpond_stream stream) = 0;

  // Throws Error(E_ARGUMENT, field) where the address is known not to be this device's memory: a
  // kernel that used it would take the whole process's device away.
  // The field is member `member` of array[index].
  virtual void check_address(const void* /*address*/, const char* /*array*/,
                             std::uint64_t /*index*/, const char* /*member*/) const {}
  // After a step: the device's own stages, in place of the time that the update had tiles.
  virtual void add_stages(millpond_step_figures*) const {}
  // phase/1, outside visits: device memory is given back, and taken again. resume() may be tried
  // again after Error(E_MEMORY).
  virtual void suspend() {}
  virtual void resume() {}
};

// For begin_fill_main: throws Error(E_ARGUMENT) naming the first chosen shard that has nothing to
// make a main of.
void require_main_sources(std::span<const ShardWork> shards, std::span<const std::uint8_t> chosen);

// `uid` and `host` are for callbacks. The pool is borrowed.
std::unique_ptr<Device> make_cpu_device(ThreadPool& pool, Host& host, std::string uid,
                                        kernels::Variant variant);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_DEVICE_WORK_H_
