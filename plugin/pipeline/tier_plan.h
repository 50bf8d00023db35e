// How the host tier is divided: pure arithmetic.
#ifndef MILLPOND_PLUGIN_PIPELINE_TIER_PLAN_H_
#define MILLPOND_PLUGIN_PIPELINE_TIER_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

namespace millpond::plugin {

struct TierPlan {
  std::uint64_t place_bytes = 0;
  std::uint32_t places = 0;
  std::uint32_t ring = 0;           // places that no store keeps
  std::vector<std::uint64_t> kept;  // K by store
};

// `tiles` by store. cap 0: as many places as there are tiles. With room for all tiles they all stay
// and there is no ring; else the ring is max(4 places, ring_bytes), at most all, and the others are
// divided in proportion to the stores' tiles (largest remainder). Throws Error(E_MEMORY) naming the
// option when fewer than 2 places fit and there is more than one tile.
TierPlan divide_tier(std::span<const std::uint64_t> tiles, std::uint64_t place_bytes,
                     std::uint64_t cap, std::uint64_t ring_bytes);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PIPELINE_TIER_PLAN_H_
