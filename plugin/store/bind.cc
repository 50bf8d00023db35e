// Store::bind: judge, plan, reserve, fill, hand over.
#include <algorithm>
#include <numeric>

#include "millpond/error.hpp"
#include "plugin/device/cuda.h"
#include "plugin/store/binding.h"
#include "plugin/store/carry.h"
#include "plugin/store/runtime.h"
#include "plugin/store/store.h"

namespace millpond::plugin {
namespace {

// Tiles that a derived tile size leaves room for in a small host region: a ring and some tier.
constexpr std::uint64_t kWantedPlaces = 12;
constexpr std::uint64_t kDefaultBlock = 1ull << 18;

Error refused(const std::vector<Refusal>& refusals) {
  const Refusal& first = refusals.front();
  std::string reason = first.reason;
  if (refusals.size() > 1) {
    reason += " (and " + std::to_string(refusals.size() - 1) + " more in the BindReport)";
  }
  return Error(MILLPOND_E_REFUSED, "bind", reason).field(first.subject).remedy(first.remedy);
}

// About: padding is not counted.
std::uint64_t state_bytes_of(const Profile& profile, kernels::Storage moments) {
  std::uint64_t bytes = 0;
  for (const Shard& shard : profile.shards) {
    const std::uint64_t main = shard.kind == ShardKind::kMomentsOnly ? 0 : 4;
    bytes += shard.numel() * (main + 2 * kernels::item_bytes(moments));
  }
  return bytes;
}

}  // namespace

kernels::Element element_of(millpond_dtype dtype) {
  return dtype == MILLPOND_DTYPE_FP32   ? kernels::Element::kFp32
         : dtype == MILLPOND_DTYPE_BF16 ? kernels::Element::kBf16
                                        : kernels::Element::kFp16;
}

bool known_element(millpond_dtype dtype) {
  return dtype == MILLPOND_DTYPE_FP32 || dtype == MILLPOND_DTYPE_BF16 ||
         dtype == MILLPOND_DTYPE_FP16;
}

HomeDevice home_of(const Profile& profile) {
  if (profile.shards.empty()) return {};
  return {profile.shards.front().device_type, profile.shards.front().device_id};
}

void check_stream(const millpond_stream& stream, HomeDevice home, const char* field,
                  const char* operation) {
  const auto refuse = [&](const char* member, const char* reason, std::uint64_t wanted,
                          std::uint64_t got) {
    return Error(MILLPOND_E_ARGUMENT, operation, reason)
        .field(std::string(field) + member)
        .want(wanted, got);
  };
  const bool cuda = home.type == MILLPOND_DEVICE_CUDA;
  const bool absent = stream.device_type == 0 && stream.device_id == 0 && !cuda;
  if (!absent && stream.device_type != home.type) {
    throw refuse(".device_type",
                 cuda ? "the store is on CUDA, the stream is not"
                      : "the store is on the CPU, the stream is not",
                 static_cast<std::uint64_t>(home.type),
                 static_cast<std::uint64_t>(stream.device_type));
  }
  if (cuda && stream.device_id != home.id) {
    throw refuse(".device_id", "the stream is of another device than the store",
                 static_cast<std::uint64_t>(home.id), static_cast<std::uint64_t>(stream.device_id));
  }
  if (!cuda && stream.handle != 0) {
    throw refuse(".handle", "on the CPU a stream's handle is 0", 0, stream.handle);
  }
  if (cuda && stream.handle == 0) {
    throw refuse(".handle",
                 "0 names no CUDA stream: 1 is the legacy default stream, 2 the per-thread one", 1,
                 0);
  }
}

void Store::bind(const millpond_bind_args& args,
                 const std::vector<millpond_shard_pointers>& pointers) {
  require_awake("bind");
  notice_failure();
  // From here on a failure leaves the store unbound and its state parked.
  detach();
  report_.clear();
  if (args.profile == nullptr && args.profile_bytes != 0) {
    throw Error(MILLPOND_E_ARGUMENT, "bind", "the pointer is NULL").field("bind_args.profile");
  }
  Profile profile = read_profile(args.profile, args.profile_bytes);
  GuardContext context;
  context.minor = runtime_.minor();
  context.has_update = runtime_.host().has_update();
  context.has_copy_main = runtime_.host().has_copy_main();
  const HomeDevice home = home_of(profile);
  if (home.type == MILLPOND_DEVICE_CUDA) {
    context.cuda_refusal = cuda_refusal(home.id);
    context.cuda_available = context.cuda_refusal.empty();
  }
  const std::vector<Refusal> refusals = judge(profile, context);
  if (!refusals.empty()) {
    report_ = write_report(refusals, nullptr);
    throw refused(refusals);
  }
  if (pointers.size() != profile.shards.size()) {
    throw Error(MILLPOND_E_ARGUMENT, "bind", "the profile names another number of shards")
        .field("bind_args.shards.count")
        .want(profile.shards.size(), pointers.size());
  }
  check_stream(args.stream, home, "bind_args.stream", "bind");
  check_pointers(profile, pointers, context.has_copy_main);
  runtime_.ensure_resources(state_bytes_of(profile, runtime_.options().moments));
  Binding(*this, std::move(profile), pointers, args.stream).run();
}

Binding::Binding(Store& store, Profile profile,
                 const std::vector<millpond_shard_pointers>& pointers, millpond_stream stream)
    : store_(store),
      runtime_(store.runtime()),
      profile_(std::move(profile)),
      pointers_(pointers),
      stream_(stream),
      released_(pointers.size()) {}

Binding::~Binding() {
  if (fresh_ == nullptr) return;
  try {
    runtime_.retire_state(std::move(fresh_));
    runtime_.plan_tier(nullptr, nullptr);
  } catch (const std::exception& error) {
    runtime_.host().log(MILLPOND_LOG_ERROR,
                        std::string("giving up a failed bind's files: ") + error.what());
  }
}

void Binding::run() {
  if (!kernels::parse_variant(profile_.arithmetic.data(), profile_.arithmetic.size(), &variant_)) {
    throw Error(MILLPOND_E_REFUSED, "bind", "unknown arithmetic \"" + profile_.arithmetic + "\"")
        .field("profile.arithmetic");
  }
  std::vector<ShardShape> shapes;
  shapes.reserve(profile_.shards.size());
  for (const Shard& shard : profile_.shards) {
    shapes.push_back({shard.numel(), shard.host_bucket, shard.kind == ShardKind::kMomentsOnly});
  }
  plan_ = make_plan(shapes, layout_options());
  match();
  prepare_work();
  if (reuse_files()) {
    reused_ = true;
    std::vector<std::uint32_t> all(profile_.shards.size());
    std::iota(all.begin(), all.end(), 0u);
    release_mains(all);
  } else {
    make_files();
    fill();
  }
  carry_counters();
  std::string report = make_report();
  hand_over();
  store_.report_ = std::move(report);
}

LayoutOptions Binding::layout_options() const {
  const Options& options = runtime_.options();
  LayoutOptions layout;
  layout.bucket_elements = options.bucket_elements;
  layout.storage = {kernels::Storage::kFp32, options.moments, options.moments};
  layout.tile_elements = options.tile_elements;
  if (layout.tile_elements == 0) {
    // Smaller tiles where the region is small; never below a block, so that files stay the same.
    layout.tile_elements = tile_elements_for(runtime_.drive_speed());
    const std::uint64_t item = 4 + 2 * kernels::item_bytes(options.moments);
    const std::uint64_t least =
        options.block_elements != 0 ? options.block_elements : kDefaultBlock;
    while (layout.tile_elements > least && layout.tile_elements % (2 * least) == 0 &&
           layout.tile_elements * item * kWantedPlaces > runtime_.memory_cap()) {
      layout.tile_elements /= 2;
    }
    if (layout.tile_elements % least != 0) layout.tile_elements = least;
  }
  layout.block_elements = options.block_elements != 0
                              ? options.block_elements
                              : std::min(kDefaultBlock, layout.tile_elements);
  return layout;
}

void Binding::match() {
  source_.assign(profile_.shards.size(), kFresh);
  // What a poisoned state holds is half written: it is not taken over, a load makes it good.
  if (store_.held_ == nullptr || store_.poisoned()) return;
  source_ = match_shards(store_.held_->profile, profile_);
  kept_ = static_cast<std::uint64_t>(
      std::count_if(source_.begin(), source_.end(), [](std::uint32_t s) { return s != kFresh; }));
}

bool Binding::reuse_files() {
  if (store_.held_ == nullptr || store_.poisoned()) return false;
  if (source_.size() != store_.held_->profile.shards.size()) return false;
  for (std::uint32_t i = 0; i < source_.size(); ++i) {
    if (source_[i] != i) return false;
  }
  const Plan& old = store_.held_->streamed->plan();
  return old.buckets.size() == plan_.buckets.size() &&
         std::equal(old.buckets.begin(), old.buckets.end(), plan_.buckets.begin(),
                    [](const Bucket& a, const Bucket& b) {
                      return a.shards == b.shards && a.file_bytes == b.file_bytes &&
                             a.tiles == b.tiles && a.moments_only == b.moments_only;
                    });
}

void Binding::make_files() {
  StreamedState* const old = store_.streamed();
  if (old != nullptr) {
    if (store_.poisoned()) {
      runtime_.pipeline().discard(*old);
    } else {
      runtime_.pipeline().flush(*old);
    }
  }
  fresh_ = runtime_.make_state(plan_, store_.uid());
  runtime_.plan_tier(fresh_.get(), old);
}

void Binding::prepare_work() {
  work_.shards.resize(profile_.shards.size());
  for (std::size_t i = 0; i < work_.shards.size(); ++i) {
    const Shard& shard = profile_.shards[i];
    const millpond_shard_pointers& given = pointers_[i];
    const auto address = [](const millpond_tensor& tensor) -> void* {
      return tensor.data == nullptr ? nullptr
                                    : static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
    };
    ShardWork& work = work_.shards[i];
    work.id = shard.id;
    work.group_id = shard.group_id;
    work.numel = shard.numel();
    work.model = address(given.model);
    work.given_main = static_cast<const float*>(address(given.main));
    work.model_element = element_of(shard.model_dtype);
    work.moments_only = shard.kind == ShardKind::kMomentsOnly;
    work.grad = address(given.grad);
    work.grad_element = element_of(shard.grad_dtype);
  }
  work_.hypers.reserve(work_.shards.size());
  work_.scalars.reserve(work_.shards.size());
  make_device();
  check_addresses();
}

void Binding::make_device() {
  const HomeDevice home = home_of(profile_);
  if (home.type != MILLPOND_DEVICE_CUDA) {
    device_ = make_cpu_device(runtime_.pool(), runtime_.host(), store_.uid(), variant_);
    return;
  }
  CudaRequest request;
  request.device_id = home.id;
  request.variant = variant_;
  request.plan = &plan_;
  request.staging_bytes = runtime_.options().device_staging_bytes;
  request.tile_bytes = plan_.max_tile_bytes;
  request.uid = store_.uid();
  request.stream = stream_;
  device_ = make_cuda_device(request, runtime_.host(), runtime_.cuda_pin(home.id));
}

void Binding::check_addresses() const {
  for (std::size_t i = 0; i < work_.shards.size(); ++i) {
    const ShardWork& shard = work_.shards[i];
    if (shard.numel == 0) continue;
    const auto check = [&](const void* address, const char* member) {
      if (address != nullptr) device_->check_address(address, "bind_args.shards", i, member);
    };
    check(shard.model, ".model.data");
    check(shard.grad, ".grad.data");
    check(shard.given_main, ".main.data");
  }
}

void Binding::carry_counters() {
  const HeldState* const old = store_.held_.get();
  steps_.assign(profile_.shards.size(), 0);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (source_[i] != kFresh) steps_[i] = old->steps[source_[i]];
  }
  // A group's counter counts for every shard of it: a new one joins where the others are.
  for (const Group& group : profile_.groups) {
    if (!group.counter_per_group) continue;
    std::uint64_t counter = 0;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (profile_.shards[i].group_id == group.id && source_[i] != kFresh) {
        counter = std::max(counter, steps_[i]);
      }
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (profile_.shards[i].group_id == group.id && source_[i] == kFresh) steps_[i] = counter;
    }
  }
}

void Binding::hand_over() {
  const std::size_t shards = profile_.shards.size();
  auto held = std::make_unique<HeldState>();
  held->completed = store_.held_ == nullptr ? 0 : store_.held_->completed;
  held->steps = std::move(steps_);
  std::vector<Store::Gradient> gradients(shards);
  std::vector<const void*> grads(shards);
  std::vector<std::uint32_t> group_of(shards), order(shards);
  for (std::uint32_t i = 0; i < shards; ++i) {
    grads[i] = work_.shards[i].grad;
    order[i] = i;
    held->by_id.emplace_back(profile_.shards[i].id, i);
    for (std::uint32_t g = 0; g < profile_.groups.size(); ++g) {
      if (profile_.groups[g].id == profile_.shards[i].group_id) group_of[i] = g;
    }
    work_.shards[i].given_main = nullptr;  // borrowed during the bind only
  }
  std::sort(held->by_id.begin(), held->by_id.end());
  std::vector<std::uint32_t> tiles, given_group(profile_.groups.size());
  tiles.reserve(plan_.tiles.size());
  std::vector<millpond_group_step> step_groups;
  step_groups.reserve(profile_.groups.size());
  const HomeDevice home = home_of(profile_);
  held->profile = std::move(profile_);
  // Nothing below throws but the old files' departure, which changes nothing of the new.
  std::unique_ptr<StreamedState> left;
  if (reused_) {
    held->streamed = std::move(store_.held_->streamed);
  } else {
    held->streamed = std::move(fresh_);
    if (store_.held_ != nullptr) left = std::move(store_.held_->streamed);
  }
  store_.held_ = std::move(held);
  store_.variant_ = variant_;
  store_.home_ = home;
  store_.device_ = std::move(device_);
  store_.work_ = std::move(work_);
  store_.gradients_ = std::move(gradients);
  store_.last_grads_ = std::move(grads);
  store_.group_of_ = std::move(group_of);
  store_.given_group_ = std::move(given_group);
  store_.order_ = std::move(order);
  store_.tiles_ = std::move(tiles);
  store_.step_groups_ = std::move(step_groups);
  store_.bound_ = true;
  if (!reused_) runtime_.retire_state(std::move(left));
}

}  // namespace millpond::plugin
