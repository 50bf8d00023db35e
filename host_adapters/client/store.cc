#include "millpond/client/store.h"

#include <algorithm>
#include <utility>

#include "host_adapters/client/runtime_core.h"
#include "millpond/client/plugin_error.h"
#include "millpond/handshake.pb.h"

namespace millpond::client {
namespace {

std::vector<Refusal> refusals_of(const v1::BindReport& report) {
  std::vector<Refusal> refusals;
  for (const v1::Refusal& refusal : report.refusals()) {
    refusals.push_back({refusal.code(), refusal.subject(), refusal.reason(), refusal.remedy()});
  }
  return refusals;
}

Plan plan_of(const v1::Plan& from) {
  Plan plan;
  plan.shards = from.shards();
  plan.elements = from.elements();
  plan.buckets = from.buckets();
  plan.tiles = from.tiles();
  plan.tile_elements = from.tile_elements();
  plan.block_elements = from.block_elements();
  plan.tier_tiles = from.tier_tiles();
  plan.shards_kept = from.shards_kept();
  for (const v1::Directory& directory : from.directories()) {
    plan.directories.push_back({directory.path(), directory.bytes(), directory.direct()});
  }
  plan.host_bytes = from.host_bytes();
  plan.device_bytes = from.device_bytes();
  plan.engine = from.engine();
  plan.engine_reason = from.engine_reason();
  plan.read_bytes_per_step = from.read_bytes_per_step();
  plan.write_bytes_per_step = from.write_bytes_per_step();
  plan.drive_bytes_per_second = from.drive_bytes_per_second();
  plan.expected_seconds_per_step = from.expected_seconds_per_step();
  plan.drive_source = from.drive_source();
  return plan;
}

// The three arrays of a step are by shard index; a wrong length would be read past its end.
void check_length(const char* field, std::size_t length, std::uint64_t shards) {
  if (length != 0 && length != shards) {
    throw Error(MILLPOND_E_ARGUMENT, "step", "the array does not have one entry a shard")
        .field(field)
        .want(shards, length);
  }
}

}  // namespace

Store::Store(std::shared_ptr<RuntimeCore> core, millpond_store* handle)
    : core_(std::move(core)), handle_(handle) {}

Store::Store(Store&& other) noexcept
    : core_(std::move(other.core_)),
      handle_(std::exchange(other.handle_, nullptr)),
      bound_shards_(other.bound_shards_) {}

Store& Store::operator=(Store&& other) noexcept {
  if (this != &other) {
    Store ended(std::move(*this));
    core_ = std::move(other.core_);
    handle_ = std::exchange(other.handle_, nullptr);
    bound_shards_ = other.bound_shards_;
  }
  return *this;
}

// A runtime that has ended took its stores with it.
millpond_store* Store::handle() const {
  return core_ && core_->handle != nullptr ? handle_ : nullptr;
}

Store::~Store() {
  if (millpond_store* store = handle()) core_->table().destroy(store, nullptr);
}

void Store::close() {
  millpond_store* store = handle();
  handle_ = nullptr;
  if (store == nullptr) return;
  core_->call([&](millpond_status* status) { return core_->table().destroy(store, status); });
}

millpond_store* Store::live() const {
  millpond_store* store = handle();
  if (store == nullptr) {
    throw Error(MILLPOND_E_STATE, "use a store", "it or its runtime is closed, or was moved from");
  }
  return store;
}

Plan Store::bind(const Binding& binding) {
  millpond_store* store = live();
  const std::string profile = binding.profile().SerializeAsString();
  millpond_bind_args args = {};
  args.header = {sizeof(args), MILLPOND_TYPE_BIND_ARGS};
  args.profile = profile.data();
  args.profile_bytes = profile.size();
  args.shards = {binding.pointers().data(), binding.pointers().size(),
                 sizeof(millpond_shard_pointers)};
  args.stream = binding.stream();
  bound_shards_ = 0;
  millpond_str bytes = {nullptr, 0};
  millpond_status status = new_status();
  const std::int32_t code = core_->attempt(
      [&](millpond_status* answer) { return core_->table().bind(store, &args, &bytes, answer); },
      &status);
  v1::BindReport report;
  const bool judged = bytes.ptr != nullptr && bytes.len > 0;
  if (judged && !report.ParseFromArray(bytes.ptr, static_cast<int>(bytes.len))) {
    throw Error(MILLPOND_E_VERSION, "bind", "the plugin's BindReport cannot be read")
        .want(kNoValue, bytes.len);
  }
  if (code == MILLPOND_E_REFUSED && judged) throw BindRefused(code, status, refusals_of(report));
  if (code != MILLPOND_OK) throw PluginError(code, status);
  bound_shards_ = binding.pointers().size();
  return plan_of(report.plan());
}

void Store::unbind() {
  core_->call([store = live(), this](millpond_status* status) {
    return core_->table().unbind(store, status);
  });
  bound_shards_ = 0;
}

Outcome Store::step(const StepRequest& request) {
  millpond_store* store = live();
  check_length("grads", request.grads.size(), bound_shards_);
  check_length("dtypes", request.dtypes.size(), bound_shards_);
  check_length("has_grad", request.has_grad.size(), bound_shards_);
  millpond_step_args args = {};
  args.header = {sizeof(args), MILLPOND_TYPE_STEP_ARGS};
  args.config_epoch = request.config_epoch;
  args.groups = {request.groups.data(), request.groups.size(), sizeof(millpond_group_step)};
  args.grads = request.grads.empty() ? nullptr : request.grads.data();
  args.dtypes = request.dtypes.empty() ? nullptr : request.dtypes.data();
  args.has_grad = request.has_grad.empty() ? nullptr : request.has_grad.data();
  args.shard_count = bound_shards_;
  args.grad_scale = request.grad_scale;
  args.found_inf = request.found_inf ? 1 : 0;
  args.stream = request.stream;
  const millpond_status status = core_->call(
      [&](millpond_status* answer) { return core_->table().step(store, &args, answer); });
  return (status.flags & MILLPOND_STATUS_SKIPPED) != 0 ? Outcome::kSkipped : Outcome::kDone;
}

void Store::refresh_main(std::span<const std::uint64_t> shard_ids, millpond_stream stream) {
  millpond_store* store = live();
  millpond_refresh_args args = {};
  args.header = {sizeof(args), MILLPOND_TYPE_REFRESH_ARGS};
  args.shard_ids = shard_ids.empty() ? nullptr : shard_ids.data();
  args.count = shard_ids.size();
  args.stream = stream;
  core_->call(
      [&](millpond_status* status) { return core_->table().refresh_main(store, &args, status); });
}

namespace {

millpond_io_args io_args(const IoRequest& request) {
  millpond_io_args args = {};
  args.header = {sizeof(args), MILLPOND_TYPE_IO_ARGS};
  args.path = as_str(request.path.native());
  args.save_id = as_str(request.save_id);
  args.flags = request.flags;
  args.stream = request.stream;
  return args;
}

}  // namespace

void Store::save(const std::filesystem::path& path) { save_to({path, {}, MILLPOND_IO_COMMIT}); }
void Store::load(const std::filesystem::path& path) { load_from({path, {}, 0}); }

void Store::save_to(const IoRequest& request) {
  const millpond_io_args args = io_args(request);
  core_->call([store = live(), &args, this](millpond_status* status) {
    return core_->table().save_to(store, &args, status);
  });
}

void Store::load_from(const IoRequest& request) {
  const millpond_io_args args = io_args(request);
  core_->call([store = live(), &args, this](millpond_status* status) {
    return core_->table().load_from(store, &args, status);
  });
}

}  // namespace millpond::client
