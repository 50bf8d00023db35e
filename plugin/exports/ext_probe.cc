// probe/1: findings and ceilings as JSON. millpond/probe.h has the keys.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "millpond/error.hpp"
#include "plugin/exports/boundary.h"
#include "plugin/exports/entry.h"
#include "plugin/exports/extensions.h"
#include "plugin/exports/json_request.h"
#include "plugin/options/options.h"
#include "plugin/probe/cuda.h"
#include "plugin/probe/directory.h"
#include "plugin/probe/drive.h"
#include "plugin/probe/machine.h"
#include "plugin/probe/update.h"
#include "plugin/store/host_memory.h"

namespace millpond::plugin {
namespace {

using Document = nlohmann::ordered_json;

constexpr std::uint64_t kMostBytes = 1ull << 50;

const char* verdict_name(CheckVerdict verdict) {
  return verdict == CheckVerdict::kOk        ? "ok"
         : verdict == CheckVerdict::kWarning ? "warning"
                                             : "failed";
}

Document to_json(const Checks& checks) {
  Document list = Document::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"verdict", verdict_name(check.verdict)},
                    {"found", check.found},
                    {"remedy", check.remedy}});
  }
  return list;
}

// What an entry runs with: a runtime's options, callbacks and turn, or none of them.
class ProbeCall {
 public:
  ProbeCall(millpond_runtime* runtime, const char* operation, std::uint32_t& flags) {
    if (runtime == nullptr) return;
    entry_.emplace(runtime, operation, flags);
    options_ = (*entry_)->options();
  }
  const Options& options() const { return options_; }
  std::string directory(const JsonRequest& request, const char* operation) const {
    std::string path =
        request.text("directory", options_.scratch.empty() ? "" : options_.scratch[0]);
    if (!path.empty()) return path;
    throw Error(MILLPOND_E_ARGUMENT, operation, "no directory is named")
        .field("request.directory")
        .remedy("Name one, or call with a runtime, whose first scratch directory is taken");
  }
  Runtime* runtime() { return entry_ ? &**entry_ : nullptr; }
  ProbeBeat beat() {
    if (!entry_) return {};
    return [this](std::uint64_t done, std::uint64_t total) {
      (*entry_)->host().progress("probe", done, total);
    };
  }

 private:
  std::optional<RuntimeEntry> entry_;
  Options options_;
};

// Runs `body(request text's call)` and gives its document to the sink.
template <class Body>
std::int32_t answer(millpond_runtime* runtime, millpond_sink_fn sink, void* context,
                    millpond_status* status, const char* operation, Body body) {
  return guarded(status, [&](std::uint32_t& flags) {
    if (sink == nullptr) {
      throw Error(MILLPOND_E_ARGUMENT, operation, "the pointer is NULL").field("sink");
    }
    ProbeCall call(runtime, operation, flags);
    const Document document = body(call);
    const std::string text =
        document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    sink(context, {text.data(), text.size()});
  });
}

std::int32_t machine(millpond_runtime* runtime, millpond_str text, millpond_sink_fn sink,
                     void* context, millpond_status* status) {
  return answer(runtime, sink, context, status, "probe machine", [&](ProbeCall& call) {
    const JsonRequest request(text, "probe machine", {"io_engine", "queue_depth"});
    MachineRequest asked;
    asked.engine =
        request.one_of("io_engine", call.options().io_engine, {"auto", "io_uring", "threads"});
    asked.queue_depth = static_cast<std::uint32_t>(
        request.integer("queue_depth", call.options().queue_depth, 0, 4096));
    const AvailableMemory memory = available_memory();
    asked.available_bytes = memory.source.empty() ? 0 : memory.bytes;
    asked.available_source = memory.source;
    const Machine machine = look_at_machine(asked);
    const auto limit = [](std::uint64_t value) {
      return value == kUnlimited ? Document(nullptr) : Document(value);
    };
    Document devices = Document::array();
    for (const CudaDevice& device : machine.cuda.devices) {
      devices.push_back(
          {{"name", device.name},
           {"memory_bytes", device.memory_bytes},
           {"free_bytes", device.free_bytes},
           {"capability", std::to_string(device.major) + "." + std::to_string(device.minor)}});
    }
    return Document{{"processors", machine.processors},
                    {"instructions", machine.instructions},
                    {"available_bytes", asked.available_bytes},
                    {"available_source", asked.available_source},
                    {"memlock_bytes", limit(machine.memlock_bytes)},
                    {"open_files", limit(machine.open_files)},
                    {"engine", machine.engine},
                    {"engine_reason", machine.engine_reason},
                    {"queue_depth", machine.queue_depth},
                    {"registered", machine.registered},
                    {"cuda",
                     {{"built", machine.cuda.built},
                      {"why_none", machine.cuda.why_none},
                      {"devices", devices}}},
                    {"checks", to_json(machine.checks)}};
  });
}

std::int32_t directory(millpond_runtime* runtime, millpond_str text, millpond_sink_fn sink,
                       void* context, millpond_status* status) {
  return answer(runtime, sink, context, status, "probe directory", [&](ProbeCall& call) {
    const JsonRequest request(text, "probe directory", {"directory", "direct", "needed_bytes"});
    DirectoryRequest asked;
    asked.path = call.directory(request, "probe directory");
    asked.direct = request.tristate("direct", call.options().direct);
    asked.needed_bytes = request.integer("needed_bytes", 0, 0, kMostBytes);
    const DirectoryFacts facts = look_at_directory(asked);
    return Document{{"path", facts.path},
                    {"usable", facts.usable},
                    {"filesystem", facts.filesystem},
                    {"total_bytes", facts.total_bytes},
                    {"free_bytes", facts.free_bytes},
                    {"direct", facts.direct},
                    {"tmpfile", facts.tmpfile},
                    {"link", facts.link},
                    {"reflink", facts.reflink},
                    {"reason", facts.reason},
                    {"checks", to_json(facts.checks)}};
  });
}

struct DriveWork {
  DriveRequest request;
  std::uint64_t move_bytes = 0;
  std::vector<double> shares;
  bool keep = false;
};

DriveWork read_drive_work(const ProbeCall& call, const JsonRequest& request, bool wanted) {
  DriveWork work;
  DriveRequest& asked = work.request;
  if (wanted) asked.directory = call.directory(request, "probe ceilings");
  asked.direct = request.tristate("direct", call.options().direct);
  asked.engine =
      request.one_of("io_engine", call.options().io_engine, {"auto", "io_uring", "threads"});
  asked.queue_depth = static_cast<std::uint32_t>(
      request.integer("queue_depth", call.options().queue_depth, 0, 4096));
  asked.transfer_bytes = request.integer("transfer_bytes", asked.transfer_bytes, 4096, 1ull << 30);
  if (asked.transfer_bytes % 4096 != 0) {
    throw Error(MILLPOND_E_ARGUMENT, "probe ceilings", "not a multiple of 4096")
        .field("request.transfer_bytes");
  }
  asked.file_bytes = request.integer("file_bytes", asked.file_bytes, 8192, kMostBytes);
  work.move_bytes = request.integer("move_bytes", asked.file_bytes, 4096, kMostBytes);
  work.shares = request.shares("read_shares", {1.0, 0.0, 0.5});
  work.keep = request.one_of("file", "removed", {"removed", "kept"}) == "kept";
  return work;
}

Document measured_drive(const DriveWork& work, Runtime* runtime, const ProbeBeat& beat) {
  std::optional<DriveProbe> own;
  if (!work.keep || runtime == nullptr) own.emplace(work.request, beat);
  DriveProbe& probe = own ? *own : runtime->kept_probe(work.request, beat);
  Document rates = Document::array();
  double judged = 0;  // of a mix, where one was asked for
  for (const double share : work.shares) {
    const DriveRate rate = probe.measure(share, work.move_bytes, beat);
    if (judged == 0 || (share > 0 && share < 1)) judged = rate.bytes_per_s;
    rates.push_back({{"read_share", share},
                     {"bytes_per_s", rate.bytes_per_s},
                     {"seconds", rate.seconds},
                     {"bytes_read", rate.bytes_read},
                     {"bytes_written", rate.bytes_written}});
  }
  return {{"engine", probe.engine()},
          {"direct", probe.direct()},
          {"rates", rates},
          {"checks", to_json({judge_drive(judged)})}};
}

kernels::Element read_element(const JsonRequest& request, const char* key, const char* otherwise) {
  const std::string name = request.one_of(key, otherwise, {"fp32", "bf16", "fp16"});
  if (name == "fp32") return kernels::Element::kFp32;
  return name == "bf16" ? kernels::Element::kBf16 : kernels::Element::kFp16;
}

UpdateRequest read_update_work(const ProbeCall& call, const JsonRequest& request, bool cuda) {
  UpdateRequest asked;
  asked.elements = request.integer("elements", asked.elements, 1, 1ull << 36);
  const std::string moments =
      request.one_of("moments", "", {"fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"});
  asked.moments = call.options().moments;
  if (!moments.empty()) {
    const std::string stored = moments == "fp32" || moments == "bf16" ? moments : moments + "_s256";
    kernels::parse_storage(stored.data(), stored.size(), &asked.moments);
  }
  asked.model = read_element(request, "parameters", "bf16");
  asked.grad = read_element(request, "gradients", "fp32");
  const std::string arithmetic =
      request.text("arithmetic", cuda ? "torch_cuda_fused/2" : "torch_cpu_fused/1");
  const char* why_not = "there is no arithmetic of this name";
  if (!kernels::parse_variant(arithmetic.data(), arithmetic.size(), &asked.variant) ||
      asked.variant == kernels::Variant::kHost ||
      !kernels::variant_supported(asked.variant, cuda, &why_not)) {
    throw Error(MILLPOND_E_ARGUMENT, "probe ceilings", why_not).field("request.arithmetic");
  }
  asked.threads = static_cast<std::uint32_t>(
      request.integer("threads", call.options().update_threads, 0, 4096));
  asked.rounds = static_cast<std::uint32_t>(request.integer("rounds", asked.rounds, 1, 1000));
  asked.shards = static_cast<std::uint32_t>(request.integer("shards", asked.shards, 1, 1'000'000));
  return asked;
}

Document measured_bus(std::int32_t device, std::uint32_t rounds,
                      const std::vector<std::string>& directions) {
  const auto wanted = [&](const char* name) {
    return std::find(directions.begin(), directions.end(), name) != directions.end();
  };
  const BusRate rate = measure_bus(device, rounds, {wanted("up"), wanted("down"), wanted("both")});
  const auto answer = [](double value) { return value > 0 ? Document(value) : Document(nullptr); };
  return {{"up_bytes_per_s", answer(rate.up_bytes_per_s)},
          {"down_bytes_per_s", answer(rate.down_bytes_per_s)},
          {"both_bytes_per_s", answer(rate.both_bytes_per_s)}};
}

Document measured_pin(std::int32_t device, std::uint64_t bytes, std::uint32_t threads) {
  const PinTime time = measure_pin(device, bytes, threads);
  return {{"bytes", bytes},
          {"touch_s", time.touch_seconds},
          {"register_s", time.register_seconds},
          {"threads", time.threads}};
}

Document to_json(const UpdateRate& rate) {
  return {{"elements", rate.elements},
          {"bytes", rate.bytes},
          {"threads", rate.threads},
          {"update_s", rate.update_seconds},
          {"ceiling_s", rate.ceiling_seconds},
          {"update_bytes_per_s", rate.update_bytes_per_s},
          {"update_ceiling_bytes_per_s", rate.ceiling_bytes_per_s}};
}

std::int32_t ceilings(millpond_runtime* runtime, millpond_str text, millpond_sink_fn sink,
                      void* context, millpond_status* status) {
  return answer(runtime, sink, context, status, "probe ceilings", [&](ProbeCall& call) {
    const JsonRequest request(text, "probe ceilings",
                              {"measure",     "directory",      "direct",         "io_engine",
                               "queue_depth", "transfer_bytes", "file_bytes",     "move_bytes",
                               "read_shares", "elements",       "moments",        "parameters",
                               "gradients",   "arithmetic",     "threads",        "rounds",
                               "shards",      "cuda_device",    "bus_directions", "pin_bytes",
                               "file"});
    const std::vector<std::string> measure = request.some_of(
        "measure", {"drive", "update"}, {"drive", "update", "bus", "cuda_update", "pin"});
    const auto wanted = [&](const char* name) {
      return std::find(measure.begin(), measure.end(), name) != measure.end();
    };
    const bool drive = wanted("drive"), update = wanted("update");
    const bool bus = wanted("bus"), cuda_update = wanted("cuda_update");
    if (update && cuda_update) {
      throw Error(MILLPOND_E_ARGUMENT, "probe ceilings", "update and cuda_update share their keys")
          .field("request.measure")
          .remedy("Ask for one at a time");
    }
    const auto device = static_cast<std::int32_t>(request.integer("cuda_device", 0, 0, 1 << 16));
    // All of the request is judged before anything takes time.
    const std::vector<std::string> directions =
        request.some_of("bus_directions", {"up", "down", "both"}, {"up", "down", "both"});
    const std::uint64_t pin_bytes = request.integer("pin_bytes", 1ull << 30, 1, kMostBytes);
    const DriveWork drive_work = read_drive_work(call, request, drive);
    const UpdateRequest update_work = read_update_work(call, request, cuda_update);
    Document document = Document::object();
    if (drive) document["drive"] = measured_drive(drive_work, call.runtime(), call.beat());
    if (update) document["update"] = to_json(measure_update(update_work));
    if (bus) document["bus"] = measured_bus(device, update_work.rounds, directions);
    if (cuda_update) {
      document["cuda_update"] = to_json(measure_cuda_update(device, update_work));
    }
    if (wanted("pin")) document["pin"] = measured_pin(device, pin_bytes, update_work.threads);
    return document;
  });
}

constexpr millpond_ext_probe kProbe{
    {sizeof(millpond_ext_probe), MILLPOND_TYPE_EXT_PROBE}, machine, directory, ceilings};

}  // namespace

const millpond_ext_probe* probe_extension() { return &kProbe; }

}  // namespace millpond::plugin
