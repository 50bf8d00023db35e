#include "plugin/probe/drive.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "millpond/error.hpp"
#include "plugin/io/engine.h"
#include "plugin/io/scratch.h"
#include "plugin/probe/pages.h"

namespace millpond::plugin {
namespace {

using Clock = std::chrono::steady_clock;

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
  static void fail(const Transfer& transfer) {
    throw Error(MILLPOND_E_IO,
                transfer.kind == Transfer::Kind::kRead ? "probe read" : "probe write",
                std::strerror(transfer.error))
        .path(transfer.path)
        .at(transfer.offset)
        .want(transfer.bytes, transfer.done)
        .os(transfer.error);
  }

  Engine& engine_;
  std::vector<Transfer> transfers_;
  std::vector<Transfer*> idle_;
  std::vector<Transfer*> done_;
};

}  // namespace

DriveRate measure_drive(const DriveRequest& request) {
  ScratchRoot root(request.directory, request.direct);
  EngineChoice choice = make_raw_engine(request.engine, request.queue_depth);
  const std::uint64_t size = request.transfer_bytes;
  const std::uint64_t places = std::max<std::uint64_t>(request.span_bytes / size, 2);
  const std::uint32_t depth = std::max<std::uint32_t>(choice.raw->depth(), 2);
  DriveRate rate;
  rate.engine = choice.raw->name();
  rate.direct = root.ability().direct;

  Engine engine(std::move(choice.raw), std::chrono::seconds(60));
  engine.reserve(depth);
  Pages memory(depth * size);
  // Noise, so that no drive or filesystem has an easier time with it than with real state.
  memory.fill_noise();
  const Fd file = root.create(places * size, "probe");
  engine.use_memory(memory.data(), memory.bytes());
  Stream stream(engine, memory, size, depth);

  std::uint64_t at = 0;
  const auto describe = [&](Transfer* transfer, Transfer::Kind kind, std::uint64_t place) {
    transfer->kind = kind;
    transfer->fd = file.get();
    transfer->offset = place % places * size;
    transfer->bytes = size;
    transfer->path = "probe file";
    return true;
  };
  stream.run([&](Transfer* transfer) {
    return at < places && describe(transfer, Transfer::Kind::kWrite, at++);
  });

  // Reads run ahead of writes by half the file; the share is kept by counting.
  const std::uint64_t total = std::max<std::uint64_t>(request.move_bytes / size, 1);
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  const auto begin = Clock::now();
  stream.run([&](Transfer* transfer) {
    const std::uint64_t issued = reads + writes;
    if (issued == total) return false;
    const bool read =
        static_cast<double>(reads) < request.read_share * static_cast<double>(issued + 1);
    return read ? describe(transfer, Transfer::Kind::kRead, places / 2 + reads++)
                : describe(transfer, Transfer::Kind::kWrite, writes++);
  });
  rate.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  rate.bytes_read = reads * size;
  rate.bytes_written = writes * size;
  rate.bytes_per_s = static_cast<double>(total * size) / rate.seconds;
  engine.forget(file.get());
  return rate;
}

}  // namespace millpond::plugin
