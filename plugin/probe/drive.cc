#include "plugin/probe/drive.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "millpond/error.hpp"
#include "plugin/io/engine.h"
#include "plugin/io/os_error.h"
#include "plugin/io/scratch.h"
#include "plugin/probe/pages.h"

namespace millpond::plugin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBeatBytes = 256 << 20;
// Below this a drive is most likely no local NVMe.
constexpr double kSlowDrive = 0.5e9;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

[[noreturn]] void fail(const Transfer& transfer) {
  throw Error(MILLPOND_E_IO, transfer.kind == Transfer::Kind::kRead ? "probe read" : "probe write",
              errno_text(transfer.error))
      .path(transfer.path)
      .at(transfer.offset)
      .want(transfer.bytes, transfer.done)
      .os(transfer.error);
}

// Keeps the queue full with transfers that a function describes until it has no more.
class Stream {
 public:
  Stream(Engine& engine, Pages& memory, std::uint64_t transfer_bytes, std::uint32_t depth)
      : engine_(engine), transfers_(depth), done_(depth) {
    for (std::uint32_t i = 0; i < depth; ++i) {
      transfers_[i].memory = memory.data() + i * transfer_bytes;
      idle_.push_back(&transfers_[i]);
    }
  }

  // After an error others may still be on their way with what belongs to this.
  ~Stream() {
    while (engine_.in_flight() > 0) engine_.reap(done_, true);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // next(transfer): fills kind, fd, offset, bytes; false when there is nothing more.
  template <typename Next>
  void run(Next next) {
    bool more = true;
    while (more || engine_.in_flight() > 0) {
      while (more && !idle_.empty()) {
        Transfer* transfer = idle_.back();
        more = next(transfer);
        if (!more) break;
        idle_.pop_back();
        engine_.submit(transfer);
      }
      const std::size_t count = engine_.reap(done_, true);
      for (std::size_t i = 0; i < count; ++i) {
        if (done_[i]->error != 0) fail(*done_[i]);
        idle_.push_back(done_[i]);
      }
    }
  }

 private:
  Engine& engine_;
  std::vector<Transfer> transfers_;
  std::vector<Transfer*> idle_;
  std::vector<Transfer*> done_;
};

}  // namespace

struct DriveProbe::State {
  explicit State(const DriveRequest& r)
      : request(r), root(r.directory, r.direct), choice(make_raw_engine(r.engine, r.queue_depth)) {}

  DriveRequest request;
  ScratchRoot root;
  EngineChoice choice;
  std::uint64_t places = 0;
  Fd file;
  std::unique_ptr<Engine> engine;

  // Runs body(stream) with memory for a full queue.
  template <typename Body>
  void with_stream(Body body) {
    const std::uint32_t depth = std::max<std::uint32_t>(engine->depth(), 2);
    Pages memory(depth * request.transfer_bytes);
    // Noise, so that no drive or filesystem has an easier time with it than with real state.
    memory.fill_noise();
    engine->use_memory(memory.data(), memory.bytes());
    const auto done = [](Engine* e) { e->use_memory(nullptr, 0); };
    const std::unique_ptr<Engine, decltype(done)> registered(engine.get(), done);
    Stream stream(*engine, memory, request.transfer_bytes, depth);
    body(stream);
  }

  bool describe(Transfer* transfer, Transfer::Kind kind, std::uint64_t place) const {
    transfer->kind = kind;
    transfer->fd = file.get();
    transfer->offset = place % places * request.transfer_bytes;
    transfer->bytes = request.transfer_bytes;
    transfer->path = "probe file";
    return true;
  }
  bool over(Clock::time_point begin) const {
    return request.most_seconds > 0 && seconds_since(begin) > request.most_seconds;
  }
  void tell(const ProbeBeat& beat, std::uint64_t done, std::uint64_t total) const {
    const std::uint64_t each = std::max<std::uint64_t>(kBeatBytes / request.transfer_bytes, 1);
    if (beat && done % each == 0) {
      beat(done * request.transfer_bytes, total * request.transfer_bytes);
    }
  }
};

DriveProbe::DriveProbe(const DriveRequest& request, const ProbeBeat& beat)
    : state_(std::make_unique<State>(request)) {
  State& state = *state_;
  const std::uint64_t size = request.transfer_bytes;
  state.places = std::max<std::uint64_t>(request.file_bytes / size, 2);
  state.file = state.root.create(state.places * size, "probe");
  state.engine = std::make_unique<Engine>(std::move(state.choice.raw), std::chrono::seconds(60));
  state.engine->reserve(std::max<std::uint32_t>(state.engine->depth(), 2));

  std::uint64_t at = 0;
  state.with_stream([&](Stream& stream) {
    const auto begin = Clock::now();
    stream.run([&](Transfer* transfer) {
      if (at == state.places || (at >= 2 && state.over(begin))) return false;
      state.tell(beat, at, state.places);
      return state.describe(transfer, Transfer::Kind::kWrite, at++);
    });
  });
  state.places = at;  // what was not written is not read either
}

DriveProbe::~DriveProbe() {
  if (state_->engine != nullptr) state_->engine->forget(state_->file.get());
}

DriveRate DriveProbe::measure(double read_share, std::uint64_t move_bytes, const ProbeBeat& beat) {
  State& state = *state_;
  const std::uint64_t total = std::max<std::uint64_t>(move_bytes / state.request.transfer_bytes, 1);
  // Reads run ahead of writes by half the file; the share is kept by counting.
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  DriveRate rate;
  state.with_stream([&](Stream& stream) {
    const auto begin = Clock::now();
    stream.run([&](Transfer* transfer) {
      const std::uint64_t issued = reads + writes;
      if (issued == total || (issued != 0 && state.over(begin))) return false;
      state.tell(beat, issued, total);
      const bool read = static_cast<double>(reads) < read_share * static_cast<double>(issued + 1);
      return read ? state.describe(transfer, Transfer::Kind::kRead, state.places / 2 + reads++)
                  : state.describe(transfer, Transfer::Kind::kWrite, writes++);
    });
    rate.seconds = seconds_since(begin);
  });
  rate.bytes_read = reads * state.request.transfer_bytes;
  rate.bytes_written = writes * state.request.transfer_bytes;
  rate.bytes_per_s = static_cast<double>(rate.bytes_read + rate.bytes_written) / rate.seconds;
  return rate;
}

const char* DriveProbe::engine() const { return state_->engine->name(); }
bool DriveProbe::direct() const { return state_->root.ability().direct; }

Check judge_drive(double mixed_bytes_per_s) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.2f GB/s", mixed_bytes_per_s / 1e9);
  if (mixed_bytes_per_s >= kSlowDrive) return {"drive", CheckVerdict::kOk, text, ""};
  return {"drive", CheckVerdict::kWarning, text,
          "Name a directory on a local NVMe drive: through this one a step takes long."};
}

}  // namespace millpond::plugin
