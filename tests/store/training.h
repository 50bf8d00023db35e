// A small host: a runtime (Job), and in it a store with its parameters (Training) that steps beside
// a resident oracle and can be compared with it bit by bit.
#ifndef MILLPOND_TESTS_STORE_TRAINING_H_
#define MILLPOND_TESTS_STORE_TRAINING_H_

#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "millpond/handshake.pb.h"
#include "tests/store/opened_plugin.h"
#include "tests/store/plain_adam.h"

namespace millpond::tests {

// A directory of its own, removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// Options beyond "scratch", as JSON members: "\"tile_elements\": 4096".
struct Job {
  explicit Job(const std::string& scratch, const std::string& options = "",
               std::function<void(millpond_host_api&)> callbacks = {});
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  std::int32_t destroy(Status* status);

  millpond_runtime* runtime = nullptr;
  std::vector<std::string> log;
  std::vector<std::pair<std::string, std::vector<std::uint64_t>>> released;  // by release_main
  std::int32_t copy_answer = MILLPOND_OK;  // of copy_main_to_model
  bool cancel = false;                     // answer of progress
  std::function<void()> in_progress;       // called inside progress
  bool log_has(const std::string& part) const;
};

struct Parameter {
  std::string key;
  std::uint64_t numel = 0;
  std::uint64_t group = 0;
  std::uint64_t host_bucket = 0;
  millpond_dtype model = MILLPOND_DTYPE_BF16;  // fp32: moments only
  millpond_dtype grad = MILLPOND_DTYPE_FP32;
  bool given_main = false;  // bound with mains beyond the model's precision
  bool no_model = false;    // the host copies mains itself
};

class Training {
 public:
  Training(Job& job, std::string uid, std::vector<Parameter> parameters, std::uint64_t seed = 1,
           v1::Counter counter = v1::COUNTER_PER_PARAMETER);
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  v1::HostProfile profile() const;
  std::int32_t bind(Status* status) { return bind(profile(), status); }
  std::int32_t bind(const v1::HostProfile& profile, Status* status);
  v1::BindReport report;  // of the last bind that gave one

  // The arguments of a step: gradients of `number`, made anew; the groups' values of that step.
  struct Step {
    std::vector<std::vector<std::uint8_t>> grads;
    std::vector<const void*> pointers;
    std::vector<millpond_dtype> dtypes;
    std::vector<std::uint8_t> has_grad;
    std::vector<millpond_group_step> groups;
    float grad_scale = 1;
    std::uint8_t found_inf = 0;
    millpond_step_args args() const;
    std::uint64_t epoch = 5;
  };
  Step make_step(std::uint64_t number);
  std::int32_t step(const Step& step, Status* status);  // the store only
  void resident_step(const Step& step);                 // the oracle only
  // Both, and the store must succeed. Returns the status flags.
  std::uint32_t train(std::uint64_t number);
  void train(std::uint64_t first, std::uint64_t last);

  // "" where model parameters are bit-equal to the oracle's, else what differs first.
  std::string models_differ() const;
  // The same for mains, moments and counters, through state/1.
  std::string state_differs();
  std::vector<float> read(std::size_t shard, std::uint32_t segment);
  std::uint64_t counter(std::size_t shard);
  // Mains and moments of the oracle := the store's present models, as a refresh would.
  void refresh_oracle();

  millpond_store* store = nullptr;
  std::vector<Parameter> parameters;
  std::vector<std::vector<std::uint8_t>> models;
  std::vector<PlainParameter> plain;
  std::uint64_t ids_from = 1000;  // shard i has id ids_from + i

 private:
  float random() { return distribution_(random_); }

  Job& job_;
  std::string uid_;
  v1::Counter counter_;
  std::mt19937_64 random_;
  std::normal_distribution<float> distribution_{0.0f, 0.05f};
  std::string report_bytes_;
};

// Arguments of a save or a load, on the CPU; path is borrowed.
millpond_io_args io_args(const std::string& path, std::uint64_t flags = MILLPOND_IO_COMMIT);

// 10 groups of hyperparameters that differ in everything, by number of the step.
millpond_group_step hyperparameters(std::uint64_t group, std::uint64_t number);

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_STORE_TRAINING_H_
