// The way from a path to a negotiated table. Internal to the client library.
#ifndef MILLPOND_HOST_ADAPTERS_CLIENT_PLUGIN_OPEN_H_
#define MILLPOND_HOST_ADAPTERS_CLIENT_PLUGIN_OPEN_H_

#include <boost/dll/shared_library.hpp>
#include <cstdint>
#include <filesystem>

#include "millpond/client/plugin.h"

namespace millpond::client {

struct Plugin::Loaded {
  std::filesystem::path path;
  boost::dll::shared_library library;
  const millpond_identity* identity = nullptr;
  const millpond_table_v1* table = nullptr;
};

// Loads, checks the identity, negotiates; see Plugin::open for what is thrown.
void load_plugin(const std::filesystem::path& path, std::uint32_t host_minor,
                 Plugin::Loaded* loaded);

}  // namespace millpond::client

#endif  // MILLPOND_HOST_ADAPTERS_CLIENT_PLUGIN_OPEN_H_
