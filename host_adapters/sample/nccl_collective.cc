#include "host_adapters/sample/nccl_collective.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "host_adapters/sample/cuda_kernels.h"
#include "millpond/error.hpp"

namespace millpond::sample {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kStagingBytes = 64 << 20;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Short waits at once, long ones without a busy processor.
void pause(double waited_s) {
  if (waited_s > 1e-3) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

NcclCollective::NcclCollective(processes::Meeting& meeting, std::uint32_t rank, CudaDevice& device)
    : meeting_(meeting),
      rank_(rank),
      device_(device),
      staging_bytes_(kStagingBytes / meeting.ranks() / 256 * 256),
      staging_(device, staging_bytes_ * meeting.ranks()) {
  // NVLink multicast is of no use to what is called here.
  setenv("NCCL_NVLS_ENABLE", "0", 1);  // NOLINT(concurrency-mt-unsafe): before NCCL's threads
  ncclUniqueId id;
  if (rank == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      throw Error(MILLPOND_E_DEVICE, "make an NCCL id", ncclGetErrorString(result));
    }
    std::memcpy(meeting.slot(0), &id, sizeof(id));
  }
  meeting.meet(rank, "exchange the NCCL id");
  std::memcpy(&id, meeting.slot(0), sizeof(id));
  meeting.meet(rank, "exchange the NCCL id");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  settle(ncclCommInitRankConfig(&communicator_, static_cast<int>(size()), id,
                                static_cast<int>(rank), &config),
         "connect by NCCL");
}

// Ends in peace where all ranks are there, else by abort; never waits long.
NcclCollective::~NcclCollective() {
  if (communicator_ == nullptr) return;
  constexpr double kPatience = 5.0;  // seconds
  const auto start = Clock::now();
  ncclResult_t state = ncclCommFinalize(communicator_);
  while ((state == ncclSuccess || state == ncclInProgress) && since(start) < kPatience) {
    if (ncclCommGetAsyncError(communicator_, &state) != ncclSuccess) break;
    if (state == ncclSuccess) {
      ncclCommDestroy(std::exchange(communicator_, nullptr));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  abort();
}

void NcclCollective::abort() noexcept {
  if (communicator_ != nullptr) ncclCommAbort(std::exchange(communicator_, nullptr));
}

std::string NcclCollective::description() const {
  int version = 0;
  ncclGetVersion(&version);
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

void NcclCollective::give_up(std::int32_t code, const char* what, const std::string& why) {
  abort();
  throw Error(code, what, why);
}

void NcclCollective::look(const char* what, double waited_s) {
  if (communicator_ == nullptr) give_up(MILLPOND_E_PEER, what, "the ranks have parted");
  try {
    meeting_.check(rank_, what);
  } catch (...) {
    abort();
    throw;
  }
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &state);
  for (const ncclResult_t result : {asked, state}) {
    if (result == ncclSuccess || result == ncclInProgress) continue;
    // A peer's end is often seen here first; its own words are better.
    const std::string words =
        std::string("NCCL: ") + ncclGetErrorString(result) + ", " + ncclGetLastError(communicator_);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    try {
      meeting_.check(rank_, what);
    } catch (...) {
      abort();
      throw;
    }
    give_up(result == ncclRemoteError ? MILLPOND_E_PEER : MILLPOND_E_DEVICE, what, words);
  }
  if (waited_s < meeting_.timeout_s()) return;
  const std::string words = meeting_.ranks_behind(rank_) + " did not come within " +
                            std::to_string(static_cast<int>(meeting_.timeout_s())) + " s";
  meeting_.break_up(words);
  give_up(MILLPOND_E_TIMEOUT, what, words);
}

void NcclCollective::settle(ncclResult_t result, const char* what) {
  if (result != ncclSuccess && result != ncclInProgress) {
    give_up(MILLPOND_E_DEVICE, what,
            std::string("NCCL: ") + ncclGetErrorString(result) + ", " + ncclGetLastError(nullptr));
  }
  const auto start = Clock::now();
  for (;;) {
    look(what, since(start));
    ncclResult_t state = ncclSuccess;
    if (ncclCommGetAsyncError(communicator_, &state) == ncclSuccess && state == ncclSuccess) return;
    pause(since(start));
  }
}

void NcclCollective::finish(millpond_stream) {
  const auto start = Clock::now();
  for (;;) {
    const cudaError_t state = cudaStreamQuery(device_.cuda_stream());
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check_cuda(state, "wait for the other ranks");
    look("wait for the other ranks", since(start));
    pause(since(start));
  }
}

void NcclCollective::reduce_scatter(float* send, float* receive, std::size_t count,
                                    millpond_stream) {
  meeting_.count_call(rank_);
  look("reduce_scatter", 0.0);
  const cudaStream_t stream = device_.cuda_stream();
  const std::size_t piece = staging_bytes_ / sizeof(float);
  auto* const addends = reinterpret_cast<float*>(staging_.get());
  for (std::size_t begin = 0; begin < count; begin += piece) {
    const std::size_t length = std::min(piece, count - begin);
    if (size() > 1) {
      // Nothing is thrown within a group: it must be closed.
      ncclResult_t worst = ncclGroupStart();
      const auto note = [&](ncclResult_t result) {
        if (result != ncclSuccess && result != ncclInProgress) worst = result;
      };
      for (std::uint32_t peer = 0; peer < size(); ++peer) {
        if (peer == rank_) continue;
        const int to = static_cast<int>(peer);
        note(ncclSend(send + peer * count + begin, length, ncclFloat, to, communicator_, stream));
        note(ncclRecv(addends + peer * piece, length, ncclFloat, to, communicator_, stream));
      }
      const ncclResult_t ended = ncclGroupEnd();
      settle(worst == ncclSuccess ? ended : worst, "reduce_scatter");
    }
    device_.copy(addends + rank_ * piece, send + rank_ * count + begin, length * sizeof(float));
    cuda::sum_tree(addends, size(), length, piece, stream);
    check_cuda(cudaGetLastError(), "reduce_scatter");
    device_.copy(receive + begin, addends, length * sizeof(float));
  }
}

void NcclCollective::all_gather(const void* send, void* receive, std::size_t bytes,
                                millpond_stream stream) {
  meeting_.count_call(rank_);
  look("all_gather", 0.0);
  if (stream.device_type != MILLPOND_DEVICE_CPU) {
    settle(ncclAllGather(send, receive, bytes, ncclInt8, communicator_, device_.cuda_stream()),
           "all_gather");
    return;
  }
  // The copies below wait for the stream, which may still wait for a rank that has died.
  finish(stream);
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(receive);
  for (std::size_t begin = 0; begin < bytes; begin += staging_bytes_) {
    const std::size_t length = std::min(staging_bytes_, bytes - begin);
    std::byte* const all = staging_.get();
    device_.upload(all + rank_ * length, from + begin, length);
    settle(ncclAllGather(all + rank_ * length, all, length, ncclInt8, communicator_,
                         device_.cuda_stream()),
           "all_gather");
    finish(stream);
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      device_.download(to + rank * bytes + begin, all + rank * length, length);
    }
  }
}

}  // namespace millpond::sample
