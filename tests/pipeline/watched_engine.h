// A raw engine for tests: moves bytes with pread and pwrite when they are asked for, in a shuffled
// order, counts, fails on purpose, and notices what a pipeline must never do: two transfers in
// flight on the same memory or the same part of a file, unaligned ones, memory outside its region.
#ifndef MILLPOND_TESTS_PIPELINE_WATCHED_ENGINE_H_
#define MILLPOND_TESTS_PIPELINE_WATCHED_ENGINE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "plugin/io/engine.h"

namespace millpond::plugin {

class WatchedEngine final : public RawEngine {
 public:
  static constexpr int kHang = -1;

  explicit WatchedEngine(std::uint32_t depth, std::uint64_t seed) : depth_(depth), random_(seed) {
    queue_.reserve(depth);
  }

  // The errno with which this attempt fails, 0 for none, kHang: no answer until release().
  std::function<int(const Transfer&)> fault;
  std::uint64_t attempts = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t reads_beside_writes = 0;  // attempts started while one of the other kind was queued
  std::size_t most_in_flight = 0;
  std::byte* region = nullptr;
  std::uint64_t region_bytes = 0;
  std::vector<int> forgotten;

  void release() { released_ = true; }

  const char* name() const override { return "watched"; }
  std::uint32_t depth() const override { return depth_; }
  void flush_submissions() override {}
  void forget(int fd) override { forgotten.push_back(fd); }
  void use_memory(std::byte* memory, std::uint64_t bytes) override {
    EXPECT_TRUE(queue_.empty());
    region = memory;
    region_bytes = bytes;
  }

  void start(Transfer* attempt) override {
    EXPECT_EQ((attempt->offset | attempt->bytes) % 4096, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(attempt->memory) % 4096, 0u);
    EXPECT_GE(attempt->memory, region);
    EXPECT_LE(attempt->memory + attempt->bytes, region + region_bytes);
    bool other = false;
    for (const Transfer* t : queue_) {
      EXPECT_TRUE(t->memory + t->bytes <= attempt->memory ||
                  attempt->memory + attempt->bytes <= t->memory)
          << "two transfers on the same memory";
      EXPECT_TRUE(t->fd != attempt->fd || t->offset + t->bytes <= attempt->offset ||
                  attempt->offset + attempt->bytes <= t->offset)
          << "two transfers on the same bytes of " << t->path;
      other = other || t->kind != attempt->kind;
    }
    if (other) ++reads_beside_writes;
    ++attempts;
    const int failure = fault ? fault(*attempt) : 0;
    attempt->error = failure;
    queue_.push_back(attempt);
    most_in_flight = std::max(most_in_flight, queue_.size());
  }

  std::size_t complete(std::span<Transfer*> completed,
                       std::chrono::steady_clock::time_point deadline) override {
    std::size_t count = 0;
    for (;;) {
      std::size_t ready = 0;  // those that answer stand first
      for (std::size_t i = 0; i < queue_.size(); ++i) {
        if (queue_[i]->error != kHang || released_) std::swap(queue_[ready++], queue_[i]);
      }
      const bool wait = deadline > std::chrono::steady_clock::now();
      if (ready != 0 && (wait || random_() % 2 == 0) && count < completed.size()) {
        const std::size_t pick = random_() % ready;
        Transfer* const attempt = queue_[pick];
        queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(pick));
        perform(attempt);
        completed[count++] = attempt;
        if (random_() % 3 != 0) continue;
      }
      if (count != 0 || !wait) return count;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  void perform(Transfer* attempt) {
    if (attempt->error != 0 && attempt->error != kHang) return;
    attempt->error = 0;
    const bool read = attempt->kind == Transfer::Kind::kRead;
    const auto offset = static_cast<off_t>(attempt->offset);
    const ssize_t moved = read ? pread(attempt->fd, attempt->memory, attempt->bytes, offset)
                               : pwrite(attempt->fd, attempt->memory, attempt->bytes, offset);
    if (moved < 0) {
      attempt->error = errno;
      return;
    }
    attempt->done = static_cast<std::uint64_t>(moved);
    (read ? read_bytes : written_bytes) += attempt->done;
  }

  std::uint32_t depth_;
  std::mt19937_64 random_;
  std::vector<Transfer*> queue_;
  bool released_ = false;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_TESTS_PIPELINE_WATCHED_ENGINE_H_
