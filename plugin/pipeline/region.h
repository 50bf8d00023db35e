// The pinned host memory of a runtime: one anonymous mapping, touched when it is made, absent from
// core dumps and from forked children, gone to the byte when it is unmapped.
#ifndef MILLPOND_PLUGIN_PIPELINE_REGION_H_
#define MILLPOND_PLUGIN_PIPELINE_REGION_H_

#include <cstddef>
#include <cstdint>

#include "plugin/core/thread_pool.h"

namespace millpond::plugin {

// Who else must know where the memory is: a device that wants its pages pinned.
class RegionPin {
 public:
  virtual ~RegionPin() = default;
  // Between mapping and touching: where the pages should come from.
  virtual void prepare(std::byte* data, std::uint64_t bytes) = 0;
  // After mapping and touching. A refusal is the pin's to tell: the memory works without it.
  virtual void attach(std::byte* data, std::uint64_t bytes) = 0;
  virtual void detach() noexcept = 0;  // before unmapping, also where nothing is attached
};

class Region {
 public:
  Region() = default;
  ~Region() { unmap(); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // `bytes`: a multiple of 4096. What was mapped before goes first. `pin`, which may be NULL,
  // prepares the pages; attaching it is the caller's. Throws Error(E_MEMORY).
  void map(std::uint64_t bytes, ThreadPool& pool, RegionPin* pin = nullptr);
  void unmap() noexcept;
  // Gives the mapping up to the kernel, which may still write to it: it stays until the process
  // ends.
  void leak() noexcept;

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PIPELINE_REGION_H_
