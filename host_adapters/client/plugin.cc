#include "millpond/client/plugin.h"

#include <cstddef>
#include <utility>

#include "host_adapters/client/plugin_open.h"
#include "host_adapters/client/runtime_core.h"
#include "millpond/client/find_plugin.h"

namespace millpond::client {
namespace {

// A newer plugin's extension may be longer, and end behind what is known here; a shorter one lacks
// entries that this program would call.
template <typename Extension>
const Extension& extension(const Plugin& plugin, std::string_view name, std::uint32_t type) {
  const void* found = plugin.table().get_extension(nullptr, as_str(name));
  if (found == nullptr) {
    throw Error(MILLPOND_E_UNSUPPORTED, "get extension", "this plugin does not have it")
        .path(plugin.path().string())
        .field(std::string(name));
  }
  const auto* header = static_cast<const millpond_header*>(found);
  if (header->type != type || header->size < sizeof(Extension)) {
    throw Error(MILLPOND_E_VERSION, "get extension", "the table is not the one of this name")
        .path(plugin.path().string())
        .field(std::string(name))
        .want(sizeof(Extension), header->size);
  }
  return *static_cast<const Extension*>(found);
}

}  // namespace

Plugin Plugin::open(const std::filesystem::path& path, std::uint32_t host_minor) {
  auto loaded = std::make_shared<Loaded>();
  load_plugin(find_plugin(path), host_minor, loaded.get());
  return Plugin(std::move(loaded));
}

const std::filesystem::path& Plugin::path() const { return loaded_->path; }
const millpond_identity& Plugin::identity() const { return *loaded_->identity; }
const millpond_table_v1& Plugin::table() const { return *loaded_->table; }

std::string Plugin::description() const {
  return std::string(identity().name) + " " + identity().version + ", ABI " +
         std::to_string(MILLPOND_ABI_MAJOR) + "." + std::to_string(minor()) + ", " +
         path().string() + " (" + identity().build_id + ")";
}

Runtime Plugin::create_runtime(std::string_view options_json, Callbacks callbacks) const {
  auto core = std::make_shared<RuntimeCore>(*this, std::move(callbacks));
  const millpond_host_api api = core->bridge.api();
  millpond_runtime* handle = nullptr;
  core->call([&](millpond_status* status) {
    return core->table().runtime_create(&api, as_str(options_json), &handle, status);
  });
  core->handle = handle;
  return Runtime(std::move(core));
}

const millpond_ext_report& Plugin::report() const {
  return extension<millpond_ext_report>(*this, MILLPOND_EXT_REPORT_1, MILLPOND_TYPE_EXT_REPORT);
}
const millpond_ext_state& Plugin::state() const {
  return extension<millpond_ext_state>(*this, MILLPOND_EXT_STATE_1, MILLPOND_TYPE_EXT_STATE);
}
const millpond_ext_checkpoint& Plugin::checkpoint() const {
  return extension<millpond_ext_checkpoint>(*this, MILLPOND_EXT_CHECKPOINT_1,
                                            MILLPOND_TYPE_EXT_CHECKPOINT);
}
const millpond_ext_phase& Plugin::phase() const {
  return extension<millpond_ext_phase>(*this, MILLPOND_EXT_PHASE_1, MILLPOND_TYPE_EXT_PHASE);
}
const millpond_ext_files& Plugin::files() const {
  return extension<millpond_ext_files>(*this, MILLPOND_EXT_FILES_1, MILLPOND_TYPE_EXT_FILES);
}
const millpond_ext_probe& Plugin::probe() const {
  return extension<millpond_ext_probe>(*this, MILLPOND_EXT_PROBE_1, MILLPOND_TYPE_EXT_PROBE);
}

}  // namespace millpond::client
