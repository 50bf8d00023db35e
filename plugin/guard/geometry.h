// Arithmetic on shapes and boxes that hostile numbers cannot overflow.
#ifndef MILLPOND_PLUGIN_GUARD_GEOMETRY_H_
#define MILLPOND_PLUGIN_GUARD_GEOMETRY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "plugin/guard/profile.h"

namespace millpond::plugin {

// Elements of a shape; 1 for a scalar, 0 with a dimension of 0. Empty when the other dimensions
// multiply to 2^63 or more, so that readers may multiply in any order.
std::optional<std::uint64_t> element_count(const std::vector<std::uint64_t>& shape);

// Whether the boxes share an element. Both inside one global shape, which bounds offset + size.
bool boxes_intersect(const Shard& a, const Shard& b);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_GUARD_GEOMETRY_H_
