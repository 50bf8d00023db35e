// The two exported symbols.
#include <algorithm>

#include "millpond/plugin.h"
#include "plugin/exports/boundary.h"
#include "plugin/exports/identity.h"
#include "plugin/exports/table.h"

const millpond_identity* millpond_plugin_identity(void) { return &millpond::plugin::identity(); }

// Every minor of the major is served: a newer host finds this build's table and uses what it knows
// of it, an older one gets the rules of its own minor.
const millpond_table_v1* millpond_open_v1(uint32_t host_minor, millpond_status* status) {
  const millpond_table_v1* table = nullptr;
  millpond::plugin::guarded(status, [&] {
    table = millpond::plugin::table_v1(std::min<std::uint32_t>(host_minor, MILLPOND_ABI_MINOR));
  });
  return table;
}
