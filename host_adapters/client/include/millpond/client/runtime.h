// A runtime: what a process has once. Move-only owner; destroying it destroys its stores.
//
// Threads: one thread at a time may be inside a runtime and its stores; a second one waits in the
// plugin.
#ifndef MILLPOND_CLIENT_RUNTIME_H_
#define MILLPOND_CLIENT_RUNTIME_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "millpond/client/store.h"
#include "millpond/plugin.h"
#include "millpond/report.h"

namespace millpond::client {

class Plugin;
struct RuntimeCore;

inline constexpr millpond_group kAlone = {0, 0, 1};
inline constexpr millpond_stream kCpuStream = {MILLPOND_DEVICE_CPU, 0, 0};

class Runtime {
 public:
  // `uid`: [A-Za-z0-9_/.-], unique in the runtime. The store keeps the runtime's insides alive, but
  // close() and this object's destructor end them: a store is then closed as well.
  Store create_store(std::string_view uid);

  // Runtime calls: every rank of the group takes part.
  void agree(millpond_group group = kAlone);
  std::string save_begin(const std::filesystem::path& path, millpond_group group = kAlone);
  void save_commit(std::string_view save_id, millpond_group group = kAlone);
  void load_commit(millpond_group group = kAlone);

  // phase/1. `host_tier`: the pinned host memory goes as well.
  void suspend(bool host_tier = false);
  void resume();

  millpond_runtime_figures figures() const;

  // Destroys the runtime and its stores, and throws what the destructor has to swallow: E_LEAKED,
  // for instance. A second call does nothing.
  void close();

  Runtime(Runtime&& other) noexcept;
  Runtime& operator=(Runtime&& other) noexcept;
  ~Runtime();

  millpond_runtime* handle() const;

 private:
  friend class Plugin;
  explicit Runtime(std::shared_ptr<RuntimeCore> core);
  std::shared_ptr<RuntimeCore> core_;
};

}  // namespace millpond::client

#endif  // MILLPOND_CLIENT_RUNTIME_H_
