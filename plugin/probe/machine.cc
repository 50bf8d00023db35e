#include "plugin/probe/machine.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "kernels/flat_run.h"
#include "millpond/error.hpp"
#include "plugin/io/engine.h"

namespace millpond::plugin {
namespace {

// The least that a step needs: two tiles of the smallest derived size, and room to breathe.
constexpr std::uint64_t kLeastMemory = 64 << 20;
constexpr std::uint64_t kLittleMemory = 1ull << 30;
// Files of a large store, its directories and the host's own.
constexpr std::uint64_t kFewFiles = 256;

std::uint64_t limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return kUnlimited;
  return limit.rlim_cur == RLIM_INFINITY ? kUnlimited : limit.rlim_cur;
}

std::uint32_t usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    return static_cast<std::uint32_t>(std::max(CPU_COUNT(&set), 1));
  }
  return std::max(std::thread::hardware_concurrency(), 1U);
}

std::string processor_name(kernels::Processor processor) {
  switch (processor) {
    case kernels::Processor::kAvx512:
      return "avx512";
    case kernels::Processor::kAvx2:
      return "avx2";
    case kernels::Processor::kPortable:
      break;
  }
  return "portable";
}

void look_for_engine(const MachineRequest& request, Machine& machine) {
  Check check{"engine", CheckVerdict::kOk, "", ""};
  try {
    const EngineChoice choice = make_raw_engine(request.engine, request.queue_depth);
    machine.engine = choice.raw->name();
    machine.engine_reason = choice.reason;
    machine.queue_depth = choice.raw->depth();
    machine.registered =
        machine.engine == "io_uring" && choice.reason.find("plain") == std::string::npos;
    check.found = choice.reason;
    if (machine.engine == "threads" && request.engine != "threads") {
      check.verdict = CheckVerdict::kWarning;
      check.remedy =
          "Allow io_uring to this process (kernel.io_uring_disabled, the container's seccomp "
          "profile): threads serve as well, at the price of processor time.";
    }
  } catch (const Error& error) {
    machine.engine_reason = error.what();
    check.verdict = CheckVerdict::kFailed;
    check.found = error.what();
    check.remedy = "Let io_engine be \"auto\".";
  }
  machine.checks.push_back(check);

  Check memlock{"memlock", CheckVerdict::kOk, "", ""};
  memlock.found = machine.memlock_bytes == kUnlimited
                      ? "RLIMIT_MEMLOCK: unlimited"
                      : "RLIMIT_MEMLOCK: " + std::to_string(machine.memlock_bytes) + " bytes";
  if (machine.registered) memlock.found += "; enough: memory could be registered with the kernel";
  if (!machine.registered && machine.memlock_bytes != kUnlimited && machine.engine != "threads" &&
      !machine.engine.empty()) {
    memlock.verdict = CheckVerdict::kWarning;
    memlock.remedy =
        "Raise it to the host tier's size (ulimit -l, /etc/security/limits.conf, or the "
        "container's --ulimit memlock=-1): then memory is registered with the kernel once.";
  }
  machine.checks.push_back(memlock);
}

Check judge_memory(const MachineRequest& request) {
  Check check{"memory", CheckVerdict::kOk, "", ""};
  if (request.available_source.empty()) {
    check.verdict = CheckVerdict::kWarning;
    check.found = "neither /proc/meminfo nor a control group says what is available";
    check.remedy = "Give host_memory_bytes as a number.";
    return check;
  }
  check.found =
      binary_size(request.available_bytes) + " available (" + request.available_source + ")";
  if (request.available_bytes < kLeastMemory) {
    check.verdict = CheckVerdict::kFailed;
    check.remedy = "Free memory, or raise the control group's limit: a step needs 64 MiB at least.";
  } else if (request.available_bytes < kLittleMemory) {
    check.verdict = CheckVerdict::kWarning;
    check.remedy =
        "Free memory, or raise the control group's limit: what fits in it need not move.";
  }
  return check;
}

Check judge_cuda(const CudaDevices& cuda) {
  Check check{"cuda", CheckVerdict::kOk, "", ""};
  for (const CudaDevice& device : cuda.devices) {
    check.found += (check.found.empty() ? "" : "; ") + device.name + ", " +
                   binary_size(device.free_bytes) + " of " + binary_size(device.memory_bytes) +
                   " free";
  }
  if (!cuda.devices.empty()) return check;
  check.found = "none: " + cuda.why_none + "; parameters on the CPU can be streamed";
  if (cuda.built) return check;
  check.remedy = "For parameters on a GPU: build with the CUDA toolkit (nvcc on PATH).";
  return check;
}

}  // namespace

std::string binary_size(std::uint64_t bytes) {
  char text[32];
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1ull << 30 || bytes == 0) {
    std::snprintf(text, sizeof(text), "%.2f GiB", value / (1ull << 30));
  } else if (bytes >= 1ull << 20) {
    std::snprintf(text, sizeof(text), "%.1f MiB", value / (1ull << 20));
  } else {
    std::snprintf(text, sizeof(text), "%.1f KiB", value / (1ull << 10));
  }
  return text;
}

Machine look_at_machine(const MachineRequest& request) {
  Machine machine;
  machine.processors = usable_processors();
  machine.instructions = processor_name(kernels::best_processor());
  machine.memlock_bytes = limit_of(RLIMIT_MEMLOCK);
  machine.open_files = limit_of(RLIMIT_NOFILE);
  machine.cuda = find_cuda_devices();
  look_for_engine(request, machine);
  machine.checks.push_back(judge_memory(request));
  Check files{"open_files", CheckVerdict::kOk,
              "RLIMIT_NOFILE: " + std::to_string(machine.open_files), ""};
  if (machine.open_files < kFewFiles) {
    files.verdict = CheckVerdict::kWarning;
    files.remedy = "Raise it (ulimit -n): a store has a file for each 200 million parameters.";
  }
  machine.checks.push_back(files);
  Check processor{"processor", CheckVerdict::kOk,
                  std::to_string(machine.processors) + " processors, " + machine.instructions, ""};
  if (machine.instructions == "portable") {
    processor.verdict = CheckVerdict::kWarning;
    processor.remedy = "A processor with AVX2 updates several times faster.";
  }
  machine.checks.push_back(processor);
  machine.checks.push_back(judge_cuda(machine.cuda));
  return machine;
}

}  // namespace millpond::plugin
