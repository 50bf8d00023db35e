#include "host_adapters/sample/shared_memory.h"

#include <algorithm>
#include <cstring>

namespace millpond::sample {

SharedMemory::SharedMemory(processes::Meeting& meeting, std::uint32_t rank, Device& device)
    : meeting_(meeting), rank_(rank), device_(device) {}

void SharedMemory::read(void* to, const void* from, std::size_t bytes, millpond_stream stream) {
  if (stream.device_type != MILLPOND_DEVICE_CPU) return device_.download(to, from, bytes);
  if (bytes != 0) std::memcpy(to, from, bytes);
}

void SharedMemory::write(void* to, const void* from, std::size_t bytes, millpond_stream stream) {
  if (stream.device_type != MILLPOND_DEVICE_CPU) return device_.upload(to, from, bytes);
  if (bytes != 0) std::memcpy(to, from, bytes);
}

// In rounds: each rank puts a piece of every part into its slot, all meet, each takes the pieces of
// its own part and sums them, all meet again before the slots are written anew.
void SharedMemory::reduce_scatter(float* send, float* receive, std::size_t count,
                                  millpond_stream stream) {
  const std::uint32_t ranks = size();
  const std::size_t piece = meeting_.slot_bytes() / sizeof(float) / ranks;
  addends_.resize(std::max(addends_.size(), ranks * std::min(piece, count)));
  for (std::size_t begin = 0; begin < count; begin += piece) {
    const std::size_t length = std::min(piece, count - begin);
    auto* slot = reinterpret_cast<float*>(meeting_.slot(rank_));
    for (std::uint32_t part = 0; part < ranks; ++part) {
      read(slot + part * length, send + part * count + begin, length * sizeof(float), stream);
    }
    meeting_.meet(rank_, "reduce_scatter");
    for (std::uint32_t other = 0; other < ranks; ++other) {
      const auto* from = reinterpret_cast<const float*>(meeting_.slot(other)) + rank_ * length;
      std::copy_n(from, length, addends_.data() + other * length);
    }
    meeting_.meet(rank_, "reduce_scatter");
    sum_as_tree(ranks, [&](std::uint32_t left, std::uint32_t right) {
      float* into = addends_.data() + left * length;
      const float* from = addends_.data() + right * length;
      for (std::size_t i = 0; i < length; ++i) into[i] += from[i];
    });
    write(receive + begin, addends_.data(), length * sizeof(float), stream);
  }
}

void SharedMemory::all_gather(const void* send, void* receive, std::size_t bytes,
                              millpond_stream stream) {
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(receive);
  for (std::size_t begin = 0; begin < bytes; begin += meeting_.slot_bytes()) {
    const std::size_t length = std::min(meeting_.slot_bytes(), bytes - begin);
    read(meeting_.slot(rank_), from + begin, length, stream);
    meeting_.meet(rank_, "all_gather");
    for (std::uint32_t other = 0; other < size(); ++other) {
      std::byte* place = to + other * bytes + begin;
      if (other == rank_ && place == from + begin) continue;
      write(place, meeting_.slot(other), length, stream);
    }
    meeting_.meet(rank_, "all_gather");
  }
}

}  // namespace millpond::sample
