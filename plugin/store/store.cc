#include "plugin/store/store.h"

#include <algorithm>

#include "plugin/store/runtime.h"
#include "plugin/store/save_job.h"

namespace millpond::plugin {

std::optional<std::uint32_t> HeldState::find(std::uint64_t shard_id) const {
  const auto found =
      std::lower_bound(by_id.begin(), by_id.end(), std::make_pair(shard_id, std::uint32_t{0}));
  if (found == by_id.end() || found->first != shard_id) return std::nullopt;
  return found->second;
}

Store::Store(Runtime& runtime, std::string uid) : runtime_(runtime), uid_(std::move(uid)) {}

Store::~Store() = default;

void Store::poison(const std::string& why) {
  // A store that never was bound has nothing that could be wrong.
  if (held_ == nullptr || poison_) return;
  poison_ = why;
  runtime_.host().log(MILLPOND_LOG_ERROR, "store " + uid_ + " is poisoned: " + why);
}

void Store::fail(const Error& error) {
  if (!verdict_) verdict_ = error;
}

void Store::notice_failure() {
  if (held_ == nullptr || held_->streamed == nullptr) return;
  const std::optional<Error>& failure = held_->streamed->failure();
  if (!failure || poison_) return;
  poison(std::string("a transfer failed after the call that began it had returned: ") +
         failure->what());
  fail(*failure);
}

void Store::require_awake(const char* operation) const {
  if (!runtime_.suspended()) return;
  throw Error(MILLPOND_E_STATE, operation, "the runtime is suspended (phase/1)")
      .remedy("Call resume first");
}

void Store::require_bound(const char* operation) const {
  if (bound_) return;
  throw Error(MILLPOND_E_STATE, operation,
              held_ != nullptr ? "the store is not bound; the state of its last bind is parked"
                               : "the store is not bound")
      .path(uid_)
      .remedy("Bind it first; after a refused bind the BindReport says what is in the way");
}

void Store::require_state(const char* operation) const {
  if (held_ != nullptr) return;
  throw Error(MILLPOND_E_STATE, operation, "the store has no state: it never was bound")
      .path(uid_)
      .remedy("Bind it first");
}

void Store::require_healthy(const char* operation) {
  notice_failure();
  if (!poison_) return;
  throw Error(MILLPOND_E_POISONED, operation, "the store is poisoned: " + *poison_)
      .path(uid_)
      .remedy("Load a checkpoint (load_from), on every rank");
}

std::uint32_t Store::shard_index(std::uint64_t shard_id, const char* operation) const {
  if (const auto index = held_->find(shard_id)) return *index;
  throw Error(MILLPOND_E_ARGUMENT, operation,
              "the store has no shard with id " + std::to_string(shard_id))
      .path(uid_)
      .field("shard_id");
}

void Store::require_ready(const char* operation) {
  require_awake(operation);
  require_bound(operation);
  require_healthy(operation);
}

void Store::refuse_bind() {
  require_awake("bind");
  detach();
  report_.clear();
}

void Store::unbind() {
  require_awake("unbind");
  require_bound("unbind");
  notice_failure();
  detach();
}

void Store::detach() {
  bound_ = false;
  device_.reset();
  work_ = {};
  drop_staged();
}

void Store::suspend_device() {
  if (device_ != nullptr) device_->suspend();
}

void Store::resume_device() {
  if (device_ != nullptr) device_->resume();
}

void Store::drop_state() {
  bound_ = false;
  device_.reset();
  work_ = {};
  drop_staged();
  std::unique_ptr<HeldState> held = std::move(held_);
  poison_.reset();
  if (held != nullptr) runtime_.retire_state(std::move(held->streamed));
}

void Store::stage_load(StagedLoad load) {
  drop_staged();
  staged_ = std::move(load);
}

std::optional<StagedLoad> Store::take_staged() { return std::exchange(staged_, std::nullopt); }

void Store::drop_staged() {
  std::optional<StagedLoad> old = std::exchange(staged_, std::nullopt);
  if (old) runtime_.retire_state(std::move(old->streamed));
}

}  // namespace millpond::plugin
