// What a visit with trivial work reaches of a raw io_uring loop that reads and writes the same
// bytes on the same files with O_DIRECT, interleaved. Not a test: it wants a real drive and time.
//   pipeline_bench DIRECTORY [state MiB] [tier MiB] [pairs] [ring MiB] [depth MiB] [tile Ki]
#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "plugin/io/engine.h"
#include "plugin/io/scratch.h"
#include "plugin/pipeline/pipeline.h"

namespace {

using millpond::plugin::Access;
using millpond::plugin::Plan;
using millpond::plugin::StreamedState;
using millpond::plugin::TileView;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Reads 4 MiB pieces of the files and writes each back where it was, 32 at a time, `bytes` in all
// each way. Seconds.
double raw_loop(const StreamedState& state, std::uint64_t bytes) {
  constexpr std::uint64_t kPiece = 4 << 20;
  constexpr unsigned kDepth = 32;
  io_uring ring;
  if (io_uring_queue_init(kDepth, &ring, 0) != 0) std::abort();
  auto* memory = static_cast<char*>(mmap(nullptr, kDepth * kPiece, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
  struct Piece {
    int fd;
    std::uint64_t offset;
  };
  std::vector<Piece> pieces;
  for (std::uint32_t b = 0; b < state.plan().buckets.size(); ++b) {
    const std::uint64_t size = state.plan().buckets[b].file_bytes;
    for (std::uint64_t at = 0; at + kPiece <= size; at += kPiece)
      pieces.push_back({state.fd(b), at});
  }
  pieces.resize(std::min<std::size_t>(pieces.size(), bytes / kPiece));
  std::vector<Piece> slots(kDepth);
  std::vector<bool> writing(kDepth);
  std::size_t next = 0;
  std::size_t flying = 0;
  const auto submit = [&](unsigned slot, bool write) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring);
    if (entry == nullptr) std::abort();
    writing[slot] = write;
    char* const at = memory + slot * kPiece;
    if (write) {
      io_uring_prep_write(entry, slots[slot].fd, at, kPiece, slots[slot].offset);
    } else {
      io_uring_prep_read(entry, slots[slot].fd, at, kPiece, slots[slot].offset);
    }
    io_uring_sqe_set_data64(entry, slot);
    ++flying;
  };
  const Clock::time_point start = Clock::now();
  for (unsigned slot = 0; slot < kDepth && next < pieces.size(); ++slot) {
    slots[slot] = pieces[next++];
    submit(slot, false);
  }
  io_uring_submit(&ring);
  while (flying != 0) {
    io_uring_cqe* answer = nullptr;
    if (io_uring_wait_cqe(&ring, &answer) != 0) std::abort();
    if (answer->res != static_cast<int>(kPiece)) std::abort();
    const auto slot = static_cast<unsigned>(io_uring_cqe_get_data64(answer));
    io_uring_cqe_seen(&ring, answer);
    --flying;
    if (!writing[slot]) {
      submit(slot, true);
    } else if (next < pieces.size()) {
      slots[slot] = pieces[next++];
      submit(slot, false);
    }
    io_uring_submit(&ring);
  }
  const double seconds = seconds_since(start);
  io_uring_queue_exit(&ring);
  munmap(memory, kDepth * kPiece);
  return seconds;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, std::uint64_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  if (argc < 2) return 2;
  const std::uint64_t elements = number(2, 4608) * (1 << 20) / 12;
  millpond::plugin::LayoutOptions layout;
  layout.tile_elements = number(7, 1024) * 1024;
  layout.block_elements = std::min<std::uint64_t>(layout.tile_elements, 1 << 18);
  layout.bucket_elements = 100'000'000;
  std::vector<millpond::plugin::ShardShape> shards;
  for (std::uint64_t left = elements; left != 0;) {
    const std::uint64_t take = std::min<std::uint64_t>(left, 50'000'000);
    shards.push_back({take, 0, false});
    left -= take;
  }
  Plan plan = make_plan(shards, layout);
  millpond::plugin::ScratchRoot root(argv[1], "auto");
  std::vector<millpond::plugin::Fd> files;
  std::vector<std::string> paths;
  for (const auto& bucket : plan.buckets) {
    paths.push_back("bucket" + std::to_string(paths.size()));
    files.push_back(root.create(bucket.file_bytes, paths.back()));
  }
  std::vector<std::uint32_t> tiles(plan.tiles.size());
  std::iota(tiles.begin(), tiles.end(), 0u);

  millpond::plugin::ThreadPool pool(2);
  auto choice = millpond::plugin::make_raw_engine("auto", 0);
  std::printf("engine %s, direct %d\n", choice.raw->name(), root.ability().direct ? 1 : 0);
  millpond::plugin::Engine engine(std::move(choice.raw), std::chrono::seconds(60));
  StreamedState state(std::move(plan), "bench", std::move(files), std::move(paths), true);
  millpond::plugin::PipelineOptions options;
  options.host_memory_bytes = number(3, 1024) << 20;
  options.ring_bytes = number(5, options.ring_bytes >> 20) << 20;
  options.depth_bytes = number(6, options.depth_bytes >> 20) << 20;
  millpond::plugin::Pipeline pipeline(options, engine, pool);
  StreamedState* const states[] = {&state};
  pipeline.plan_tier(states);
  std::printf("T %zu, places %u, ring %u, K %llu, %.1f MiB a tile\n", tiles.size(),
              pipeline.places(), pipeline.ring_places(),
              static_cast<unsigned long long>(state.tier_tiles()),
              static_cast<double>(pipeline.place_bytes()) / (1 << 20));

  const auto visit = [&](Access access, millpond_step_figures* figures) {
    millpond::plugin::CallOnTile work([](TileView& view) {
      view.memory[view.index % 4096] ^= std::byte{1};
      view.moments_present = view.dirty = true;
    });
    const Clock::time_point start = Clock::now();
    pipeline.visit(state, tiles, access, work, figures);
    const double returned = seconds_since(start);
    pipeline.settle();
    return std::pair(returned, seconds_since(start));
  };
  visit(Access::kOverwrite, nullptr);
  visit(Access::kUpdate, nullptr);
  std::vector<double> ratios;
  for (std::uint64_t pair = 0; pair < number(4, 5); ++pair) {
    const std::uint64_t moving = (tiles.size() - state.tier_tiles()) * pipeline.place_bytes();
    const double raw = raw_loop(state, moving);
    millpond_step_figures figures{};
    const auto [returned, settled] = visit(Access::kUpdate, &figures);
    const double raw_rate = 2.0 * static_cast<double>(moving) / raw;
    const double rate = static_cast<double>(figures.bytes_read + figures.bytes_written) / settled;
    ratios.push_back(rate / raw_rate);
    std::printf(
        "raw %.3f s %.2f GB/s | visit %.3f s, settled %.3f s %.2f GB/s | ratio %.3f | waiting "
        "fetch %.2f update %.2f flush %.2f bound by %u\n",
        raw, raw_rate / 1e9, returned, settled, rate / 1e9, ratios.back(),
        figures.waiting_seconds[0], figures.waiting_seconds[2], figures.waiting_seconds[4],
        figures.bound_by);
    std::fflush(stdout);
  }
  std::printf("median ratio %.3f\n", median(ratios));
  return 0;
}
