// What Runtime and its Stores share: the handle, the callbacks' bridge, the one place where a
// status becomes an exception. Internal to the client library.
#ifndef MILLPOND_HOST_ADAPTERS_CLIENT_RUNTIME_CORE_H_
#define MILLPOND_HOST_ADAPTERS_CLIENT_RUNTIME_CORE_H_

#include <cstdint>
#include <string_view>
#include <utility>

#include "millpond/client/callbacks.h"
#include "millpond/client/plugin.h"
#include "millpond/client/plugin_error.h"

namespace millpond::client {

inline millpond_str as_str(std::string_view text) { return {text.data(), text.size()}; }

struct RuntimeCore {
  RuntimeCore(Plugin opened, Callbacks callbacks)
      : plugin(std::move(opened)), bridge(std::move(callbacks)) {}
  RuntimeCore(const RuntimeCore&) = delete;
  RuntimeCore& operator=(const RuntimeCore&) = delete;
  ~RuntimeCore() {
    if (handle != nullptr) plugin.table().runtime_destroy(handle, nullptr);
  }

  const millpond_table_v1& table() const { return plugin.table(); }

  // Throws Error(E_STATE) after close().
  millpond_runtime* live() const {
    if (handle == nullptr) {
      throw Error(MILLPOND_E_STATE, "use a runtime", "it is closed, or was moved from");
    }
    return handle;
  }

  // `function(status)` is a call of the plugin; its status comes back when it succeeded.
  template <typename Function>
  millpond_status call(Function function) {
    millpond_status status = new_status();
    const std::int32_t code = attempt(function, &status);
    if (code != MILLPOND_OK) throw PluginError(code, status);
    return status;
  }

  // As call, but the code comes back. An exception that left a callback is thrown on if the call
  // failed; a successful call was not interrupted by it.
  template <typename Function>
  std::int32_t attempt(Function function, millpond_status* status) {
    bridge.take_exception();
    const std::int32_t code = function(status);
    const std::exception_ptr exception = bridge.take_exception();
    if (code != MILLPOND_OK && exception) std::rethrow_exception(exception);
    return code;
  }

  Plugin plugin;
  CallbackBridge bridge;
  millpond_runtime* handle = nullptr;
};

}  // namespace millpond::client

#endif  // MILLPOND_HOST_ADAPTERS_CLIENT_RUNTIME_CORE_H_
