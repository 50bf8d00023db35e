#include "tests/store/opened_plugin.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace millpond::tests {
namespace {

[[noreturn]] void give_up(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::abort();
}

const millpond_table_v1* open() {
  void* library = dlopen(MILLPOND_PLUGIN_PATH, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) give_up("dlopen", dlerror());
  const auto open_v1 = reinterpret_cast<millpond_open_v1_fn>(dlsym(library, "millpond_open_v1"));
  if (open_v1 == nullptr) give_up("dlsym", dlerror());
  Status status;
  const millpond_table_v1* opened = open_v1(MILLPOND_ABI_MINOR, &status);
  if (opened == nullptr) give_up("millpond_open_v1", status.message);
  return opened;
}

}  // namespace

const millpond_table_v1& table() {
  static const millpond_table_v1* const kOpened = open();
  return *kOpened;
}

const void* extension(const char* name) {
  const void* found = table().get_extension(nullptr, {name, std::strlen(name)});
  if (found == nullptr) give_up("get_extension", name);
  return found;
}

}  // namespace millpond::tests
