// Collective over memory that processes of one machine share. Device buffers go through host
// memory: every rank may be on a device of its own, or all on one.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_SHARED_MEMORY_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_SHARED_MEMORY_H_

#include <string>
#include <vector>

#include "host_adapters/processes/meeting.h"
#include "host_adapters/sample/collective.h"
#include "host_adapters/sample/device.h"

namespace millpond::sample {

class SharedMemory : public Collective {
 public:
  // Meeting and device must outlive it.
  SharedMemory(processes::Meeting& meeting, std::uint32_t rank, Device& device);

  std::string description() const override { return "shared memory"; }
  std::uint32_t rank() const override { return rank_; }
  std::uint32_t size() const override { return meeting_.ranks(); }
  void reduce_scatter(float* send, float* receive, std::size_t count,
                      millpond_stream stream) override;
  void all_gather(const void* send, void* receive, std::size_t bytes,
                  millpond_stream stream) override;
  void finish(millpond_stream) override { device_.finish(); }

 private:
  void read(void* to, const void* from, std::size_t bytes, millpond_stream stream);
  void write(void* to, const void* from, std::size_t bytes, millpond_stream stream);

  processes::Meeting& meeting_;
  std::uint32_t rank_;
  Device& device_;
  std::vector<float> addends_;  // one piece of every rank
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_SHARED_MEMORY_H_
