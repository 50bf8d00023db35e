// How the functions of the table and of the extensions come in: handles become objects, the call
// takes its turn, and the status says whether the store is poisoned.
#ifndef MILLPOND_PLUGIN_EXPORTS_ENTRY_H_
#define MILLPOND_PLUGIN_EXPORTS_ENTRY_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "millpond/error.hpp"
#include "millpond/plugin.h"
#include "plugin/store/call.h"
#include "plugin/store/runtime.h"
#include "plugin/store/store.h"

namespace millpond::plugin {

inline millpond_runtime* to_handle(Runtime* runtime) {
  return reinterpret_cast<millpond_runtime*>(runtime);
}
inline millpond_store* to_handle(Store* store) { return reinterpret_cast<millpond_store*>(store); }

inline Runtime& runtime_of(millpond_runtime* handle, const char* operation) {
  if (handle == nullptr) {
    throw Error(MILLPOND_E_ARGUMENT, operation, "the handle is NULL").field("runtime");
  }
  return *reinterpret_cast<Runtime*>(handle);
}
inline Store& store_of(millpond_store* handle, const char* operation) {
  if (handle == nullptr) {
    throw Error(MILLPOND_E_ARGUMENT, operation, "the handle is NULL").field("store");
  }
  return *reinterpret_cast<Store*>(handle);
}

// Inside a call of a runtime.
class RuntimeEntry {
 public:
  RuntimeEntry(millpond_runtime* handle, const char* operation, std::uint32_t& flags)
      : runtime_(runtime_of(handle, operation)), flags_(flags), call_(runtime_, operation) {}
  ~RuntimeEntry() {
    const auto& stores = runtime_.stores();
    if (std::any_of(stores.begin(), stores.end(), [](auto& store) { return store->poisoned(); })) {
      flags_ |= MILLPOND_STATUS_POISONED;
    }
  }
  RuntimeEntry(const RuntimeEntry&) = delete;
  RuntimeEntry& operator=(const RuntimeEntry&) = delete;
  Runtime* operator->() { return &runtime_; }
  Runtime& operator*() { return runtime_; }

 private:
  Runtime& runtime_;
  std::uint32_t& flags_;
  Call call_;
};

// Inside a call of a store.
class StoreEntry {
 public:
  StoreEntry(millpond_store* handle, const char* operation, std::uint32_t& flags)
      : store_(store_of(handle, operation)), flags_(flags), call_(store_.runtime(), operation) {}
  ~StoreEntry() {
    if (store_.poisoned()) flags_ |= MILLPOND_STATUS_POISONED;
  }
  StoreEntry(const StoreEntry&) = delete;
  StoreEntry& operator=(const StoreEntry&) = delete;
  Store* operator->() { return &store_; }
  Store& operator*() { return store_; }

 private:
  Store& store_;
  std::uint32_t& flags_;
  Call call_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_EXPORTS_ENTRY_H_
