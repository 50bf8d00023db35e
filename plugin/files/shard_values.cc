#include "plugin/files/shard_values.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/adam.h"

namespace millpond::plugin {

bool ShardValues::present(std::uint32_t shard, std::uint32_t segment) const {
  const auto& all = sources_.of(shard);
  return std::any_of(all.begin(), all.end(), [&](const ShardSource& source) {
    return segment == MILLPOND_SEGMENT_MAIN ? !sources_.record(source).moments_only
                                            : sources_.store(source).moments_present(source.shard);
  });
}

void ShardValues::read(std::uint32_t shard, std::uint32_t segment, std::uint64_t begin,
                       std::uint64_t count, float* values) const {
  std::memset(values, 0, count * sizeof(float));
  std::vector<float> run_values;
  for (const ShardSource& source : sources_.of(shard)) {
    checkpoint::StoreReader& store = sources_.store(source);
    if (segment == MILLPOND_SEGMENT_MAIN ? sources_.record(source).moments_only
                                         : !store.moments_present(source.shard)) {
      continue;
    }
    checkpoint::for_each_common_run(
        sources_.part(shard), source.part, begin, begin + count,
        [&](const checkpoint::CommonRun& run) {
          // The reader begins at groups.
          const std::uint64_t from = run.b / kernels::kGroupElements * kernels::kGroupElements;
          run_values.resize(run.b + run.count - from);
          store.read(source.shard, segment, from, run.b + run.count,
                     [&](const checkpoint::VerifiedRun& verified) {
                       // decode only reads.
                       const kernels::StoredRun stored{const_cast<std::byte*>(verified.block),
                                                       verified.block_elements, verified.first,
                                                       verified.storage};
                       kernels::decode(stored, run_values.data() + (verified.begin - from),
                                       verified.count);
                     });
          std::memcpy(values + (run.a - begin), run_values.data() + (run.b - from),
                      run.count * sizeof(float));
        });
  }
}

}  // namespace millpond::plugin
