// Elements of shards as fp32, put together from wherever a checkpoint has them.
#ifndef MILLPOND_PLUGIN_FILES_SHARD_VALUES_H_
#define MILLPOND_PLUGIN_FILES_SHARD_VALUES_H_

#include <cstdint>
#include <vector>

#include "plugin/store/shard_sources.h"

namespace millpond::plugin {

// One thread.
class ShardValues {
 public:
  explicit ShardValues(const ShardSources& sources) : sources_(sources) {}

  // Whether any element of the segment is in the files; the others are zero.
  bool present(std::uint32_t shard, std::uint32_t segment) const;
  // Elements [begin, begin + count) of the live shard. Throws Error(E_CORRUPT).
  void read(std::uint32_t shard, std::uint32_t segment, std::uint64_t begin, std::uint64_t count,
            float* values) const;

 private:
  const ShardSources& sources_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_FILES_SHARD_VALUES_H_
