#include "millpond/client/runtime.h"

#include <cstring>
#include <string>
#include <utility>

#include "host_adapters/client/runtime_core.h"

namespace millpond::client {

Runtime::Runtime(std::shared_ptr<RuntimeCore> core) : core_(std::move(core)) {}
Runtime::Runtime(Runtime&&) noexcept = default;

Runtime& Runtime::operator=(Runtime&& other) noexcept {
  if (this != &other) {
    Runtime ended(std::move(*this));
    core_ = std::move(other.core_);
  }
  return *this;
}

Runtime::~Runtime() {
  if (!core_ || core_->handle == nullptr) return;
  core_->table().runtime_destroy(std::exchange(core_->handle, nullptr), nullptr);
}

void Runtime::close() {
  if (!core_ || core_->handle == nullptr) return;
  // The handle is invalid afterwards whatever the answer.
  millpond_runtime* handle = std::exchange(core_->handle, nullptr);
  core_->call(
      [&](millpond_status* status) { return core_->table().runtime_destroy(handle, status); });
}

namespace {

RuntimeCore& core_of(const std::shared_ptr<RuntimeCore>& core) {
  if (!core) throw Error(MILLPOND_E_STATE, "use a runtime", "it was moved from");
  return *core;
}

}  // namespace

millpond_runtime* Runtime::handle() const { return core_ ? core_->handle : nullptr; }

Store Runtime::create_store(std::string_view uid) {
  RuntimeCore& core = core_of(core_);
  millpond_store* store = nullptr;
  core.call([&](millpond_status* status) {
    return core.table().create(core.live(), as_str(uid), &store, status);
  });
  return {core_, store};
}

void Runtime::agree(millpond_group group) {
  RuntimeCore& core = core_of(core_);
  core.call(
      [&](millpond_status* status) { return core.table().agree(core.live(), group, status); });
}

std::string Runtime::save_begin(const std::filesystem::path& path, millpond_group group) {
  RuntimeCore& core = core_of(core_);
  millpond_save_id id = {};
  core.call([&](millpond_status* status) {
    return core.plugin.checkpoint().save_begin(core.live(), group, as_str(path.native()), &id,
                                               status);
  });
  return {id.text, strnlen(id.text, sizeof(id.text))};
}

void Runtime::save_commit(std::string_view save_id, millpond_group group) {
  RuntimeCore& core = core_of(core_);
  core.call([&](millpond_status* status) {
    return core.plugin.checkpoint().save_commit(core.live(), group, as_str(save_id), status);
  });
}

void Runtime::load_commit(millpond_group group) {
  RuntimeCore& core = core_of(core_);
  core.call([&](millpond_status* status) {
    return core.plugin.checkpoint().load_commit(core.live(), group, status);
  });
}

void Runtime::suspend(bool host_tier) {
  RuntimeCore& core = core_of(core_);
  core.call([&](millpond_status* status) {
    return core.plugin.phase().suspend(core.live(), host_tier ? MILLPOND_SUSPEND_HOST_TIER : 0,
                                       status);
  });
}

void Runtime::resume() {
  RuntimeCore& core = core_of(core_);
  core.call(
      [&](millpond_status* status) { return core.plugin.phase().resume(core.live(), status); });
}

millpond_runtime_figures Runtime::figures() const {
  RuntimeCore& core = core_of(core_);
  millpond_runtime_figures figures = {};
  figures.header = {sizeof(figures), MILLPOND_TYPE_RUNTIME_FIGURES};
  core.call([&](millpond_status* status) {
    return core.plugin.report().runtime(core.live(), &figures, status);
  });
  return figures;
}

}  // namespace millpond::client
