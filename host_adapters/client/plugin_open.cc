#include "host_adapters/client/plugin_open.h"

#include <cstddef>
#include <string>
#include <system_error>

#include "millpond/client/plugin_error.h"

namespace millpond::client {
namespace {

Error wrong_file(const std::filesystem::path& path, std::string reason) {
  return Error(MILLPOND_E_VERSION, "open plugin", std::move(reason)).path(path.string());
}

template <typename Function>
Function* find_symbol(const Plugin::Loaded& loaded, const char* name) {
  return loaded.library.has(name) ? &loaded.library.get<Function>(name) : nullptr;
}

// Reads nothing beyond magic and header until those are known to be right: the file may be anything
// that happens to have a function of this name.
void check_identity(const Plugin::Loaded& loaded) {
  const millpond_identity* identity = loaded.identity;
  if (identity == nullptr) throw wrong_file(loaded.path, "millpond_plugin_identity gives nothing");
  if (identity->magic != MILLPOND_MAGIC) {
    throw wrong_file(loaded.path, "the identity's magic number is wrong")
        .field("identity.magic")
        .want(MILLPOND_MAGIC, identity->magic)
        .remedy("Give the path of libmillpond.so");
  }
  if (identity->header.type != MILLPOND_TYPE_IDENTITY) {
    throw wrong_file(loaded.path, "the identity has the wrong type")
        .field("identity.header.type")
        .want(MILLPOND_TYPE_IDENTITY, identity->header.type);
  }
  if (identity->header.size < sizeof(millpond_identity)) {
    throw wrong_file(loaded.path, "the identity is shorter than its frozen layout")
        .field("identity.header.size")
        .want(sizeof(millpond_identity), identity->header.size);
  }
  if (identity->pointer_bytes != sizeof(void*)) {
    throw wrong_file(loaded.path, "the plugin is built for another pointer size")
        .field("identity.pointer_bytes")
        .want(sizeof(void*), identity->pointer_bytes);
  }
  if (identity->little_endian != 1) {
    throw wrong_file(loaded.path, "the plugin is built for another byte order")
        .field("identity.little_endian")
        .want(1, identity->little_endian);
  }
  if (MILLPOND_ABI_MAJOR < identity->major_min || MILLPOND_ABI_MAJOR > identity->major_max) {
    throw wrong_file(loaded.path, "the plugin serves ABI majors " +
                                      std::to_string(identity->major_min) + " to " +
                                      std::to_string(identity->major_max) +
                                      ", this program speaks " + std::to_string(MILLPOND_ABI_MAJOR))
        .field("identity.major_max")
        .want(MILLPOND_ABI_MAJOR, identity->major_max)
        .remedy(MILLPOND_ABI_MAJOR > identity->major_max ? "Install a newer plugin"
                                                         : "Rebuild this program");
  }
}

void check_table(const Plugin::Loaded& loaded, std::uint32_t host_minor) {
  // Entries up to get_extension are those of 1.0; the client calls no later one.
  constexpr std::size_t kFirstSize = offsetof(millpond_table_v1, get_extension) + sizeof(void*);
  const millpond_table_v1& table = *loaded.table;
  if (table.header.type != MILLPOND_TYPE_TABLE_V1 || table.header.size < kFirstSize) {
    throw wrong_file(loaded.path, "the table of functions is not that of major 1")
        .field("table.header.size")
        .want(kFirstSize, table.header.size);
  }
  if (table.minor > host_minor) {
    throw wrong_file(loaded.path, "the plugin negotiated a newer minor than this program speaks")
        .field("table.minor")
        .want(host_minor, table.minor);
  }
}

}  // namespace

void load_plugin(const std::filesystem::path& path, std::uint32_t host_minor,
                 Plugin::Loaded* loaded) {
  loaded->path = path;
  try {
    loaded->library.load(path, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
  } catch (const std::system_error& error) {
    throw Error(MILLPOND_E_VERSION, "open plugin", error.what())
        .path(path.string())
        .remedy("Give the path of libmillpond.so, built for this machine");
  }
  auto* identity = find_symbol<const millpond_identity*()>(*loaded, "millpond_plugin_identity");
  if (identity == nullptr) {
    throw wrong_file(path, "this shared object has no millpond_plugin_identity: it is no plugin")
        .remedy("Give the path of libmillpond.so");
  }
  loaded->identity = identity();
  check_identity(*loaded);

  auto* open = find_symbol<const millpond_table_v1*(std::uint32_t, millpond_status*)>(
      *loaded, "millpond_open_v1");
  if (open == nullptr)
    throw wrong_file(path, "millpond_open_v1 is absent though the identity promises it");
  millpond_status status = new_status();
  loaded->table = open(host_minor, &status);
  if (loaded->table == nullptr) {
    throw PluginError(status.code == MILLPOND_OK ? MILLPOND_E_VERSION : status.code, status);
  }
  check_table(*loaded, host_minor);
}

}  // namespace millpond::client
