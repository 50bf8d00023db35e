#include "plugin/device/work.h"

#include <cstddef>

#include "millpond/error.hpp"

namespace millpond::plugin {

void require_main_sources(std::span<const ShardWork> shards, std::span<const std::uint8_t> chosen) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const ShardWork& shard = shards[i];
    if (chosen[i] == 0 || shard.numel == 0 || shard.moments_only) continue;
    if (shard.model != nullptr || shard.given_main != nullptr) continue;
    throw Error(MILLPOND_E_ARGUMENT, "make main parameters",
                "a shard has neither a model tensor nor mains to begin with")
        .field("bind_args.shards[" + std::to_string(i) + "].main")
        .at(i)
        .remedy("Give fp32 mains at bind where the host keeps the parameter itself");
  }
}

}  // namespace millpond::plugin
