#include "tests/store/training.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <set>

#include "millpond/features.h"

namespace millpond::tests {
namespace {

Job& job_of(void* context) { return *static_cast<Job*>(context); }

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = ::testing::TempDir() + "/millpond-store-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
  path_ = std::filesystem::canonical(pattern);  // as /proc shows it
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Job::Job(const std::string& scratch, const std::string& options,
         std::function<void(millpond_host_api&)> callbacks) {
  millpond_host_api api{};
  api.header = {sizeof(api), MILLPOND_TYPE_HOST_API};
  api.context = this;
  api.log = [](void* context, std::uint32_t, millpond_str line) {
    job_of(context).log.emplace_back(line.ptr, line.len);
  };
  api.release_main = [](void* context, millpond_str uid, const std::uint64_t* ids,
                        std::uint64_t count, std::int32_t* answer) {
    job_of(context).released.emplace_back(std::string(uid.ptr, uid.len),
                                          std::vector<std::uint64_t>(ids, ids + count));
    *answer = MILLPOND_OK;
  };
  api.copy_main_to_model = [](void* context, millpond_str, std::uint64_t, std::uint64_t,
                              const float*, std::uint64_t,
                              std::int32_t* answer) { *answer = job_of(context).copy_answer; };
  api.progress = [](void* context, millpond_str, std::uint64_t, std::uint64_t,
                    std::int32_t* cancel) {
    Job& job = job_of(context);
    if (job.in_progress) job.in_progress();
    *cancel = job.cancel ? 1 : 0;
  };
  if (callbacks) callbacks(api);
  std::string json =
      "{\"scratch\": " + (scratch.front() == '[' ? scratch : "\"" + scratch + "\"") +
      (options.find("io_timeout_s") != std::string::npos ? "" : ", \"io_timeout_s\": 20") +
      (options.empty() ? "" : ", " + options) + "}";
  Status status;
  EXPECT_EQ(table().runtime_create(&api, str(json), &runtime, &status), MILLPOND_OK)
      << status.text();
}

Job::~Job() {
  if (runtime != nullptr) table().runtime_destroy(runtime, nullptr);
}

std::int32_t Job::destroy(Status* status) {
  return table().runtime_destroy(std::exchange(runtime, nullptr), status);
}

bool Job::log_has(const std::string& part) const {
  for (const std::string& line : log) {
    if (line.find(part) != std::string::npos) return true;
  }
  return false;
}

Training::Training(Job& job, std::string uid, std::vector<Parameter> given, std::uint64_t seed,
                   v1::Counter counter)
    : parameters(std::move(given)),
      job_(job),
      uid_(std::move(uid)),
      counter_(counter),
      random_(seed) {
  Status status;
  EXPECT_EQ(table().create(job.runtime, str(uid_), &store, &status), MILLPOND_OK) << status.text();
  for (const Parameter& parameter : parameters) {
    std::vector<std::uint8_t>& model =
        models.emplace_back(parameter.numel * bytes_of(parameter.model));
    PlainParameter& resident = plain.emplace_back(parameter.numel);
    for (std::uint64_t i = 0; i < parameter.numel; ++i) {
      const float value = random();
      put(model, parameter.model, i, value);
      resident.main[i] = parameter.given_main ? value : get(model, parameter.model, i);
    }
  }
}

Training::~Training() {
  if (store != nullptr && job_.runtime != nullptr) table().destroy(store, nullptr);
}

v1::HostProfile Training::profile() const {
  v1::HostProfile profile;
  profile.set_framework("test");
  profile.set_adapter("store_test");
  profile.mutable_optimizer()->set_class_name("torch.optim.AdamW");
  profile.mutable_optimizer()->set_family(v1::FAMILY_ADAM);
  profile.set_arithmetic("torch_cpu_fused/1");
  profile.set_config_epoch(5);
#define MILLPOND_INACTIVE(since, must, name, meaning) \
  {                                                   \
    v1::Feature& feature = *profile.add_features();   \
    feature.set_name(name);                           \
    feature.set_state(v1::STATE_INACTIVE);            \
  }
  MILLPOND_FEATURES(MILLPOND_INACTIVE)
#undef MILLPOND_INACTIVE
  std::set<std::uint64_t> groups;
  for (const Parameter& parameter : parameters) groups.insert(parameter.group);
  for (const std::uint64_t id : groups) {
    v1::Group& group = *profile.add_groups();
    group.set_id(id);
    group.set_key("group" + std::to_string(id));
    group.set_counter(counter_);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    v1::Shard& shard = *profile.add_shards();
    shard.set_id(ids_from + i);
    shard.set_key(parameter.key);
    shard.add_global_shape(parameter.numel);
    shard.add_box_offset(0);
    shard.add_box_shape(parameter.numel);
    shard.set_flat_end(parameter.numel);
    shard.set_group_id(parameter.group);
    shard.set_host_bucket(parameter.host_bucket);
    shard.set_kind(parameter.model == MILLPOND_DTYPE_FP32 ? v1::KIND_MOMENTS_ONLY
                                                          : v1::KIND_MAIN_AND_MOMENTS);
    shard.set_model_dtype(parameter.model);
    shard.set_grad_dtype(parameter.grad);
    shard.set_model_storage(v1::STORAGE_DENSE);
    shard.set_grad_storage(v1::STORAGE_DENSE);
    shard.set_device_type(MILLPOND_DEVICE_CPU);
  }
  return profile;
}

std::int32_t Training::bind(const v1::HostProfile& profile, Status* status) {
  const std::string bytes = profile.SerializeAsString();
  std::vector<millpond_shard_pointers> shards(parameters.size());
  std::vector<std::vector<float>> mains;
  mains.reserve(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    millpond_shard_pointers& shard = shards[i];
    shard.shard_id = ids_from + i;
    if (parameter.numel != 0 && !parameter.no_model) {
      shard.model = {models[i].data(), 0, parameter.numel, MILLPOND_DEVICE_CPU, 0,
                     parameter.model,  0};
    }
    if (parameter.given_main) {
      mains.push_back(plain[i].main);
      shard.main = {mains.back().data(), 0, parameter.numel, MILLPOND_DEVICE_CPU, 0,
                    MILLPOND_DTYPE_FP32, 0};
    }
  }
  millpond_bind_args args{};
  args.header = {sizeof(args), MILLPOND_TYPE_BIND_ARGS};
  args.profile = bytes.data();
  args.profile_bytes = bytes.size();
  args.shards = {shards.data(), shards.size(), sizeof(millpond_shard_pointers)};
  args.stream = {MILLPOND_DEVICE_CPU, 0, 0};
  millpond_str text{};
  const std::int32_t code = table().bind(store, &args, &text, status);
  report.Clear();
  if (text.len != 0) {
    EXPECT_TRUE(report.ParseFromArray(text.ptr, static_cast<int>(text.len)));
  }
  return code;
}

millpond_io_args io_args(const std::string& path, std::uint64_t flags) {
  millpond_io_args args{};
  args.header = {sizeof(args), MILLPOND_TYPE_IO_ARGS};
  args.path = str(path);
  args.flags = flags;
  args.stream = {MILLPOND_DEVICE_CPU, 0, 0};
  return args;
}

millpond_group_step hyperparameters(std::uint64_t group, std::uint64_t number) {
  millpond_group_step values{};
  values.id = group;
  const auto n = static_cast<double>(number);
  values.lr = (group + 1.0) * 1e-3 * (0.5 + 0.5 * std::cos(n * 0.02));
  values.beta1 = number < 100 ? 0.9 : 0.45 + 0.01 * static_cast<double>(group);
  values.beta2 = number < 100 ? 0.999 - 0.01 * static_cast<double>(group) : 0.95;
  values.eps = group % 2 == 0 ? 1e-8 : 1e-6;
  values.weight_decay = 0.1 * static_cast<double>(group);
  values.decoupled = 1;
  values.maximize = group == 3 ? 1 : 0;
  return values;
}

millpond_step_args Training::Step::args() const {
  millpond_step_args args{};
  args.header = {sizeof(args), MILLPOND_TYPE_STEP_ARGS};
  args.config_epoch = epoch;
  args.groups = {groups.data(), groups.size(), sizeof(millpond_group_step)};
  args.grads = pointers.data();
  args.dtypes = dtypes.data();
  args.has_grad = has_grad.data();
  args.shard_count = pointers.size();
  args.grad_scale = grad_scale;
  args.found_inf = found_inf;
  args.stream = {MILLPOND_DEVICE_CPU, 0, 0};
  return args;
}

// Now and then: parameters without a gradient, an overflow, a scale, groups in another order.
Training::Step Training::make_step(std::uint64_t number) {
  Step step;
  std::set<std::uint64_t> groups;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    groups.insert(parameter.group);
    std::vector<std::uint8_t>& grad =
        step.grads.emplace_back(parameter.numel * bytes_of(parameter.grad));
    for (std::uint64_t e = 0; e < parameter.numel; ++e) put(grad, parameter.grad, e, random());
    const bool absent = (i * 7 + number) % 5 == 0 && number % 3 != 0;
    step.has_grad.push_back(absent ? 0 : 1);
    step.pointers.push_back(absent || grad.empty() ? nullptr : grad.data());
    step.dtypes.push_back(parameter.grad);
  }
  for (const std::uint64_t id : groups) step.groups.push_back(hyperparameters(id, number));
  if (number % 2 == 0) std::reverse(step.groups.begin(), step.groups.end());
  if (number % 7 == 0) step.grad_scale = 1.5f;
  if (number % 17 == 0) {
    step.found_inf = 1;
    if (!step.grads.back().empty()) put(step.grads.back(), parameters.back().grad, 0, INFINITY);
  }
  return step;
}

std::int32_t Training::step(const Step& step, Status* status) {
  const millpond_step_args args = step.args();
  return table().step(store, &args, status);
}

void Training::resident_step(const Step& step) {
  if (step.found_inf != 0) return;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    PlainParameter& resident = plain[i];
    if (step.has_grad[i] != 0) {
      for (const millpond_group_step& group : step.groups) {
        if (group.id != parameters[i].group) continue;
        resident.update(group, step.grads[i], step.dtypes[i], step.grad_scale, resident.step + 1);
      }
    }
    if (step.has_grad[i] != 0 || counter_ == v1::COUNTER_PER_GROUP) ++resident.step;
  }
}

std::uint32_t Training::train(std::uint64_t number) {
  const Step made = make_step(number);
  Status status;
  EXPECT_EQ(step(made, &status), MILLPOND_OK) << "step " << number << ": " << status.text();
  resident_step(made);
  return status.flags;
}

void Training::train(std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t number = first; number <= last && !::testing::Test::HasFailure(); ++number) {
    const std::uint32_t flags = train(number);
    EXPECT_EQ((flags & MILLPOND_STATUS_SKIPPED) != 0, number % 17 == 0) << number;
  }
}

std::string Training::models_differ() const {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].no_model) continue;
    std::vector<std::uint8_t> expected(models[i].size());
    for (std::uint64_t e = 0; e < parameters[i].numel; ++e) {
      put(expected, parameters[i].model, e, plain[i].main[e]);
      const std::uint64_t size = bytes_of(parameters[i].model);
      if (std::memcmp(&expected[e * size], &models[i][e * size], size) != 0) {
        return "model of " + parameters[i].key + " at " + std::to_string(e) + ": " +
               std::to_string(get(models[i], parameters[i].model, e)) + " instead of " +
               std::to_string(plain[i].main[e]);
      }
    }
  }
  return "";
}

std::vector<float> Training::read(std::size_t shard, std::uint32_t segment) {
  std::vector<float> values(parameters[shard].numel);
  Status status;
  EXPECT_EQ(
      states().read(store, ids_from + shard, segment, 0, values.size(), values.data(), &status),
      MILLPOND_OK)
      << status.text();
  return values;
}

std::uint64_t Training::counter(std::size_t shard) {
  std::uint64_t step = UINT64_MAX;
  Status status;
  EXPECT_EQ(states().get_step(store, ids_from + shard, &step, &status), MILLPOND_OK)
      << status.text();
  return step;
}

std::string Training::state_differs() {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::vector<float>* expected[] = {&plain[i].main, &plain[i].exp_avg,
                                            &plain[i].exp_avg_sq};
    for (std::uint32_t s = parameters[i].model == MILLPOND_DTYPE_FP32 ? 1 : 0; s < 3; ++s) {
      const std::vector<float> stored = read(i, s);
      for (std::uint64_t e = 0; e < stored.size(); ++e) {
        if (std::memcmp(&stored[e], &(*expected[s])[e], sizeof(float)) == 0) continue;
        return "segment " + std::to_string(s) + " of " + parameters[i].key + " at " +
               std::to_string(e) + ": " + std::to_string(stored[e]) + " instead of " +
               std::to_string((*expected[s])[e]);
      }
    }
    if (counter(i) != plain[i].step) {
      return "counter of " + parameters[i].key + ": " + std::to_string(counter(i)) +
             " instead of " + std::to_string(plain[i].step);
    }
  }
  return "";
}

void Training::refresh_oracle() {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (std::uint64_t e = 0; e < parameters[i].numel; ++e) {
      plain[i].main[e] = get(models[i], parameters[i].model, e);
    }
  }
}

}  // namespace millpond::tests
