// The plugin's probe/1, asked and answered in JSON.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_PROBE_H_
#define MILLPOND_HOST_ADAPTERS_CLI_PROBE_H_

#include <nlohmann/json.hpp>

#include "millpond/client/plugin.h"

namespace millpond::cli {

using Json = nlohmann::ordered_json;

// One entry of the extension. `runtime` NULL: without its options and its progress. Throws
// PluginError.
Json ask(millpond_files_fn entry, millpond_runtime* runtime, const Json& request);

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_PROBE_H_
