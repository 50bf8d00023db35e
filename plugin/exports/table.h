// The table of functions, between millpond_open_v1 (which negotiates) and the table_*.cc that fill
// it.
#ifndef MILLPOND_PLUGIN_EXPORTS_TABLE_H_
#define MILLPOND_PLUGIN_EXPORTS_TABLE_H_

#include <cstdint>

#include "millpond/plugin.h"

namespace millpond::plugin {

// The static table for the negotiated minor: at most MILLPOND_ABI_MINOR. Runtimes that are made
// through it read options, features and structs by that minor's rules. Any thread; never NULL.
const millpond_table_v1* table_v1(std::uint32_t minor);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_EXPORTS_TABLE_H_
