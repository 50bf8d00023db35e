// Three steps of a real store over an engine that fails on purpose: every transfer, in every way.
// A step gives the right bytes, or it fails and poisons; then a load makes everything right again,
// or the store is destroyed as it is.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <filesystem>

#include "tests/io/sandbox.h"
#include "tests/store/campaign.h"
#include "tests/store/faulty_plugin.h"
#include "tests/store/training.h"

namespace millpond::tests {
namespace {

using plugin::Fault;
using plugin::Transfer;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kTile = 4096;
constexpr std::uint64_t kTransfer = kTile * 4;  // bytes of a segment of a tile
constexpr int kErrors[] = {EIO, ENOSPC, EDQUOT, EINTR, EAGAIN, EINVAL, EACCES};
constexpr std::uint64_t kCuts[] = {0, 1, 511, 512, 4095, kTransfer - 1};

std::string name_of(const Fault& fault) {
  return "kind " + std::to_string(static_cast<int>(fault.kind)) + " error " +
         std::to_string(fault.error) + " bytes " + std::to_string(fault.bytes) +
         (fault.for_ever ? " for ever" : " once") + " from attempt " +
         std::to_string(fault.attempt);
}

bool retried(int error) { return error == EINTR || error == EAGAIN; }

// Whether all three steps must succeed, must not, or may do either.
enum class Must : std::uint8_t { kSucceed, kFail, kEither };

Must demand(const Fault& fault) {
  switch (fault.kind) {
    case Fault::Kind::kError:
      return retried(fault.error) && !fault.for_ever ? Must::kSucceed : Must::kFail;
    case Fault::Kind::kShortBy:
      return !fault.for_ever || fault.bytes == 0 ? Must::kSucceed : Must::kEither;
    case Fault::Kind::kShortTo:
      if (fault.bytes == 0) return Must::kFail;
      return fault.for_ever ? Must::kEither : Must::kSucceed;
    case Fault::Kind::kNever:
      return Must::kFail;
    default:
      return Must::kSucceed;
  }
}

// Faults that are over at once, and those that last until io_timeout_s.
std::vector<Fault> faults_of(bool lasting) {
  std::vector<Fault> all;
  for (const bool for_ever : {false, true}) {
    for (const int error : kErrors) {
      Fault fault;
      fault.kind = Fault::Kind::kError;
      fault.error = error;
      fault.for_ever = for_ever;
      if ((for_ever && retried(error)) == lasting) all.push_back(fault);
    }
    for (const auto kind : {Fault::Kind::kShortBy, Fault::Kind::kShortTo}) {
      for (const std::uint64_t cut : kCuts) {
        Fault fault;
        fault.kind = kind;
        fault.bytes = cut;
        fault.for_ever = for_ever;
        if ((demand(fault) == Must::kEither) == lasting) all.push_back(fault);
      }
    }
  }
  if (lasting) {
    all.emplace_back();
    all.back().kind = Fault::Kind::kNever;
  }
  return all;
}

std::int32_t code_of(const Fault& fault) {
  if (fault.kind == Fault::Kind::kNever) return MILLPOND_E_TIMEOUT;
  const bool space = fault.error == ENOSPC || fault.error == EDQUOT;
  return space ? MILLPOND_E_NO_SPACE : MILLPOND_E_IO;
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

class Run {
 public:
  Run(const std::string& directory, const char* engine, double timeout_s)
      : job_(directory, std::string("\"tile_elements\": 4096, \"host_memory_bytes\": 196608, "
                                    "\"io_engine\": \"") +
                            engine + "\", \"update_threads\": 1, \"io_timeout_s\": " +
                            std::to_string(timeout_s)),
        training_(job_, "rank00000/opt0_0",
                  {{"a", 3 * kTile + 100, 0, 0},
                   {"b", kTile + 900, 2, 1, MILLPOND_DTYPE_FP16, MILLPOND_DTYPE_BF16, true},
                   {"n", kTile + 1, 0, 2, MILLPOND_DTYPE_FP32}}),
        path_(directory + "/saved") {
    io_ = io_args(path_, 0);
  }

  void start() {
    Status status;
    ASSERT_EQ(training_.bind(&status), MILLPOND_OK) << status.text();
    ASSERT_EQ(save(&status), MILLPOND_OK) << status.text();
    saved_ = training_.plain;
    saved_models_ = training_.models;
  }

  // Returns the attempts of the three steps. give_up: what failed is destroyed, not loaded.
  std::uint64_t three_steps(const Fault& fault, bool give_up) {
    faults().set(fault);
    Status status;
    std::int32_t code = MILLPOND_OK;
    for (std::uint64_t number = 1; number <= 3 && code == MILLPOND_OK; ++number) {
      code = step(number, &status);
    }
    const std::uint64_t attempts = faults().attempts();
    if (fault.attempt <= attempts && fault.kind != Fault::Kind::kNone) {
      EXPECT_GE(faults().met(), 1u);
    }
    met_ = faults().met() != 0;
    if (code == MILLPOND_OK) {
      // What is still on its way when a step returns is the next one's to find; what is retried
      // then succeeds as soon as the fault is gone.
      if (!met_ || !fault.for_ever) faults().set({});
      code = step(4, &status);
      if (code == MILLPOND_OK) faults().set({});
    }
    if (code != MILLPOND_OK) {
      expect_poisoned(fault, code, status);
      if (give_up) {
        destroy();  // while the drive is as bad as before
        return attempts;
      }
      recover(fault);
    } else if (met_) {
      EXPECT_NE(demand(fault), Must::kFail) << "a failure was not told";
    }
    expect_right();
    training_.train(5, 7);
    expect_right();
    EXPECT_EQ(faults().out(), 0u) << "attempts whose memory is not given back";
    destroy();
    return attempts;
  }

 private:
  void destroy() {
    Status status;
    const auto begin = Clock::now();
    EXPECT_EQ(job_.destroy(&status), MILLPOND_OK) << status.text();
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10)) << "it hangs";
    training_.store = nullptr;
  }
  std::int32_t step(std::uint64_t number, Status* status) {
    const Training::Step made = training_.make_step(number);
    const auto begin = Clock::now();
    const std::int32_t code = training_.step(made, status);
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10)) << "it hangs";
    if (code == MILLPOND_OK) training_.resident_step(made);
    return code;
  }
  std::int32_t save(Status* status) {
    io_.flags = MILLPOND_IO_COMMIT;
    return table().save_to(training_.store, &io_, status);
  }
  std::int32_t load(Status* status) {
    io_.flags = 0;
    return table().load_from(training_.store, &io_, status);
  }

  void expect_poisoned(const Fault& fault, std::int32_t code, const Status& status) {
    EXPECT_NE(demand(fault), Must::kSucceed) << status.text();
    EXPECT_TRUE(met_);
    EXPECT_EQ(code, code_of(fault)) << status.text();
    if (fault.kind == Fault::Kind::kError) {
      EXPECT_EQ(status.native, fault.error) << status.text();
    }
    const std::string text = status.message;
    EXPECT_NE(text.find("bucket"), std::string::npos) << "the file: " << text;
    EXPECT_NE(text.find("offset"), std::string::npos) << text;
    EXPECT_NE(status.flags & MILLPOND_STATUS_POISONED, 0u) << text;
    Status refused;
    EXPECT_EQ(training_.step(training_.make_step(4), &refused), MILLPOND_E_POISONED);
    EXPECT_EQ(save(&refused), MILLPOND_E_POISONED) << refused.text();
    if (fault.kind == Fault::Kind::kNever) {
      EXPECT_EQ(faults().out(), 1u);
      faults().let_go();
      return;
    }
    EXPECT_EQ(faults().out(), 0u) << "attempts whose memory is not given back";
  }

  void recover(const Fault& fault) {
    Status status;
    if (fault.for_ever && demand(fault) == Must::kFail && !retried(fault.error)) {
      // The drive is as bad as before.
      EXPECT_NE(load(&status), MILLPOND_OK);
      EXPECT_NE(status.flags & MILLPOND_STATUS_POISONED, 0u) << status.text();
    }
    faults().set({});
    ASSERT_EQ(load(&status), MILLPOND_OK) << status.text();
    EXPECT_EQ(status.flags & MILLPOND_STATUS_POISONED, 0u);
    training_.plain = saved_;
    training_.models[2] = saved_models_[2];  // an fp32 parameter is the host's own to restore
    EXPECT_EQ(training_.models_differ(), "") << "after the load";
  }

  void expect_right() {
    millpond_runtime_figures figures{};
    figures.header = {sizeof(figures), MILLPOND_TYPE_RUNTIME_FIGURES};
    Status status;
    EXPECT_EQ(reports().runtime(job_.runtime, &figures, &status), MILLPOND_OK) << status.text();
    EXPECT_EQ(figures.leaked_bytes, 0u);
    EXPECT_EQ(training_.models_differ() + training_.state_differs(), "");
  }

  Job job_;
  Training training_;
  std::string path_;
  millpond_io_args io_{};
  std::vector<PlainParameter> saved_;
  std::vector<std::vector<std::uint8_t>> saved_models_;
  bool met_ = false;
};

std::uint64_t run(const Fault& fault, const char* engine, double timeout_s, bool give_up) {
  SCOPED_TRACE(std::string(engine) + ", " + name_of(fault) + (give_up ? ", given up" : ""));
  const sandbox::TempDirectory directory(true);
  const std::size_t descriptors = open_descriptors();
  std::uint64_t attempts = 0;
  {
    Run run(directory.path(), engine, timeout_s);
    run.start();
    if (!testing::Test::HasFailure()) attempts = run.three_steps(fault, give_up);
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  return attempts;
}

// Every fault with every attempt, or some of them, spread over both.
void campaign(const std::vector<Fault>& list, std::uint64_t few, double timeout_s) {
  Fault none;
  none.kind = Fault::Kind::kError;
  none.attempt = UINT64_MAX;
  for (const char* engine : {"auto", "threads"}) {
    const std::uint64_t attempts = run(none, engine, 20, false);
    ASSERT_GT(attempts, 100u);
    for (const std::uint64_t number : some_of(attempts * list.size(), few)) {
      Fault fault = list[number % list.size()];
      fault.attempt = 1 + number / list.size();
      run(fault, engine, timeout_s, fault.attempt % 4 == 0);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(FaultSteps, B14_B15_every_transfer_fails_in_every_way) { campaign(faults_of(false), 250, 20); }

TEST(FaultSteps, B02_B15_what_is_retried_is_retried_until_the_timeout) {
  campaign(faults_of(true), 26, kSanitized ? 0.5 : in_campaign() ? 0.1 : 0.25);
}

// XFS on a disk of large sectors takes nothing that is not 4096-aligned in file, memory and length.
TEST(FaultSteps, B01_an_engine_that_refuses_what_is_not_aligned_refuses_nothing) {
  Fault strict;
  strict.kind = Fault::Kind::kUnaligned;
  strict.for_ever = true;
  for (const char* moments : {"fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"}) {
    SCOPED_TRACE(moments);
    const sandbox::TempDirectory directory(true);
    Job job(directory.path(),
            std::string("\"tile_elements\": 4096, \"host_memory_bytes\": 250000, \"moments\": \"") +
                moments + "\"");
    faults().set(strict);
    std::vector<Parameter> odd;
    for (const std::uint64_t elements : {1u, 127u, 1023u, 1025u, 4095u, 4097u, 50'001u}) {
      odd.push_back({"p" + std::to_string(elements), elements, 0, elements % 3});
    }
    Training training(job, "s", odd);
    Status status;
    ASSERT_EQ(training.bind(&status), MILLPOND_OK) << status.text();
    training.train(1, 3);
    EXPECT_GT(faults().attempts(), 50u);
    EXPECT_EQ(faults().met(), 0u);
    if (std::string(moments) == "fp32") {
      EXPECT_EQ(training.models_differ() + training.state_differs(), "");
    }
  }
}

}  // namespace
}  // namespace millpond::tests
