#include "plugin/pipeline/tier_plan.h"

#include <algorithm>
#include <limits>

#include "millpond/base.h"
#include "millpond/error.hpp"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kSmallestRing =
    4;  // one tile in each of fetch, update and flush, one ahead

// Whole shares of `places` in proportion to tiles, by largest remainder; the earlier store wins a
// tie. places < all tiles, so no share exceeds its store's tiles.
std::vector<std::uint64_t> shares(std::span<const std::uint64_t> tiles, std::uint64_t places,
                                  std::uint64_t all) {
  std::vector<std::uint64_t> share(tiles.size());
  std::vector<std::uint64_t> remainder(tiles.size());
  std::uint64_t given = 0;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    share[i] = places * tiles[i] / all;  // both below 2^32
    remainder[i] = places * tiles[i] % all;
    given += share[i];
  }
  for (; given < places; ++given) {
    const auto most = std::max_element(remainder.begin(), remainder.end());
    ++share[static_cast<std::size_t>(most - remainder.begin())];
    *most = 0;
  }
  return share;
}

}  // namespace

TierPlan divide_tier(std::span<const std::uint64_t> tiles, std::uint64_t place_bytes,
                     std::uint64_t cap, std::uint64_t ring_bytes) {
  TierPlan plan;
  plan.place_bytes = place_bytes;
  plan.kept.assign(tiles.size(), 0);
  std::uint64_t all = 0;
  for (const std::uint64_t count : tiles) all += count;
  if (all == 0) return plan;
  const std::uint64_t fit = cap == 0 ? all : std::min(all, cap / place_bytes);
  const std::uint64_t needed = std::min<std::uint64_t>(all, 2);
  if (fit < needed || fit > std::numeric_limits<std::uint32_t>::max() - 1) {
    throw Error(
        MILLPOND_E_MEMORY, "plan the host tier",
        "the memory allowed is too small for tiles of " + std::to_string(place_bytes) + " bytes")
        .field("options.host_memory_bytes")
        .want(needed * place_bytes, cap)
        .remedy("Set host_memory_bytes higher, or tile_elements lower.");
  }
  plan.places = static_cast<std::uint32_t>(fit);
  if (fit == all) {
    plan.kept.assign(tiles.begin(), tiles.end());
    return plan;
  }
  plan.ring =
      static_cast<std::uint32_t>(std::min(fit, std::max(kSmallestRing, ring_bytes / place_bytes)));
  plan.kept = shares(tiles, fit - plan.ring, all);
  return plan;
}

}  // namespace millpond::plugin
