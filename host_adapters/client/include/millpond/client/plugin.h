// libmillpond.so, opened and negotiated. The file is loaded with dlopen (RTLD_NOW, RTLD_LOCAL) and
// is never linked; it stays loaded until the process ends.
//
//   auto plugin = Plugin::open();
//   auto runtime = plugin.create_runtime(R"({"scratch": "/nvme/scratch"})");
//   auto store = runtime.create_store("rank00000/opt0_0");
//
// Plugin is a shared handle of what never goes away: copies are cheap, and it may be used by any
// thread.
#ifndef MILLPOND_CLIENT_PLUGIN_H_
#define MILLPOND_CLIENT_PLUGIN_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "millpond/checkpoint.h"
#include "millpond/client/callbacks.h"
#include "millpond/client/runtime.h"
#include "millpond/files.h"
#include "millpond/phase.h"
#include "millpond/plugin.h"
#include "millpond/probe.h"
#include "millpond/report.h"
#include "millpond/state.h"

namespace millpond::client {

class Plugin {
 public:
  // Finds the file (find_plugin.h), loads it, checks its identity before anything else is called,
  // and negotiates with `host_minor`, the ABI minor that the host wants to speak. Throws
  // Error(E_MISSING) without a file, Error(E_VERSION) for a file that is no plugin, or of another
  // major, and the plugin's own words where it declines.
  static Plugin open(const std::filesystem::path& path = {},
                     std::uint32_t host_minor = MILLPOND_ABI_MINOR);

  const std::filesystem::path& path() const;
  const millpond_identity& identity() const;
  const millpond_table_v1& table() const;
  // min(host's, plugin's): features and options that came later must not be sent.
  std::uint32_t minor() const { return table().minor; }
  // "millpond 0.1.0, ABI 1.0, /usr/lib/libmillpond.so (gcc 12.2, no CUDA)".
  std::string description() const;

  // `options_json` is one JSON object; README.md lists the keys.
  Runtime create_runtime(std::string_view options_json, Callbacks callbacks = {}) const;

  // Extension tables; throw Error(E_UNSUPPORTED) where this plugin does not have one.
  const millpond_ext_report& report() const;
  const millpond_ext_state& state() const;
  const millpond_ext_checkpoint& checkpoint() const;
  const millpond_ext_phase& phase() const;
  const millpond_ext_files& files() const;
  const millpond_ext_probe& probe() const;

  struct Loaded;  // the library and its tables

 private:
  explicit Plugin(std::shared_ptr<const Loaded> loaded) : loaded_(std::move(loaded)) {}
  std::shared_ptr<const Loaded> loaded_;
};

}  // namespace millpond::client

#endif  // MILLPOND_CLIENT_PLUGIN_H_
