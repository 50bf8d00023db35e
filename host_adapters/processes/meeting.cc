#include "host_adapters/processes/meeting.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <ctime>
#include <new>

#include "millpond/error.hpp"

namespace millpond::processes {
namespace {

constexpr std::size_t kPage = 4096;
constexpr long kLook = 20'000'000;  // ns between two looks at who has ended

enum Word : std::uint32_t { kFree, kBeingWritten, kWritten };

std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// The futex calls of other processes: std::atomic's own waiting is within one process only.
void wait_for_change(std::atomic<std::uint32_t>& value, std::uint32_t seen) {
  const timespec limit = {0, kLook};
  syscall(SYS_futex, &value, FUTEX_WAIT, seen, &limit, nullptr, 0);
}
void wake_all(std::atomic<std::uint32_t>& value) {
  syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Text that is written once and read by other processes.
struct Note {
  std::atomic<std::uint32_t> word{kFree};
  char text[224] = {};

  void write(const std::string& what) {
    std::uint32_t free = kFree;
    if (!word.compare_exchange_strong(free, kBeingWritten)) return;
    std::snprintf(text, sizeof(text), "%s", what.c_str());
    word.store(kWritten, std::memory_order_release);
  }
  bool written() const { return word.load(std::memory_order_acquire) == kWritten; }
};

}  // namespace

struct Meeting::Place {
  alignas(64) std::atomic<std::uint32_t> meetings{0};  // how often this rank has come
  std::atomic<std::uint64_t> calls{0};
  Note ended;
};

struct Meeting::Shared {
  std::atomic<std::uint32_t> come{0};
  alignas(64) std::atomic<std::uint32_t> generation{0};  // meetings that are over
  Note broken;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

Meeting::Meeting(std::uint32_t ranks, std::size_t slot_bytes, double timeout_s)
    : ranks_(ranks), slot_bytes_(slot_bytes), timeout_s_(timeout_s) {
  bytes_ = pages(sizeof(Shared)) + pages(ranks * sizeof(Place)) + ranks * pages(slot_bytes);
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(MILLPOND_E_MEMORY, "share memory", "the ranks' shared memory could not be had")
        .want(bytes_, 0)
        .os(errno);
  }
  shared_ = new (memory) Shared;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) new (&place(rank)) Place;
}

Meeting::~Meeting() { munmap(shared_, bytes_); }

Meeting::Place& Meeting::place(std::uint32_t rank) const {
  std::byte* first = reinterpret_cast<std::byte*>(shared_) + pages(sizeof(Shared));
  return reinterpret_cast<Place*>(first)[rank];
}

std::byte* Meeting::slot(std::uint32_t rank) const {
  return reinterpret_cast<std::byte*>(shared_) + pages(sizeof(Shared)) +
         pages(ranks_ * sizeof(Place)) + rank * pages(slot_bytes_);
}

void Meeting::mark_ended(std::uint32_t rank, const std::string& how) {
  place(rank).ended.write(how);
  wake_all(shared_->generation);
}

void Meeting::break_up(const std::string& why) {
  shared_->broken.write(why);
  wake_all(shared_->generation);
}

std::string Meeting::broken() const {
  return shared_->broken.written() ? shared_->broken.text : "";
}

void Meeting::count_call(std::uint32_t rank) {
  place(rank).calls.fetch_add(1, std::memory_order_relaxed);
}

std::string Meeting::ranks_behind(std::uint32_t rank) const {
  const std::uint64_t own = place(rank).calls.load(std::memory_order_relaxed);
  std::string names;
  for (std::uint32_t other = 0; other < ranks_; ++other) {
    if (place(other).calls.load(std::memory_order_relaxed) >= own) continue;
    names += (names.empty() ? "rank " : ", rank ") + std::to_string(other);
  }
  return names.empty() ? "a rank" : names;
}

void Meeting::check(std::uint32_t rank, const char* what) const {
  for (std::uint32_t other = 0; other < ranks_; ++other) {
    if (other == rank || !place(other).ended.written()) continue;
    throw Error(MILLPOND_E_PEER, what,
                "rank " + std::to_string(other) + " " + place(other).ended.text)
        .remedy("Look for its own message; then start again");
  }
  if (shared_->broken.written()) {
    throw Error(MILLPOND_E_PEER, what, shared_->broken.text);
  }
}

void Meeting::meet(std::uint32_t rank, const char* what) {
  if (shared_->broken.written()) check(rank, what);
  const std::uint32_t generation = shared_->generation.load(std::memory_order_acquire);
  place(rank).meetings.store(generation + 1, std::memory_order_release);
  if (shared_->come.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
    shared_->come.store(0, std::memory_order_relaxed);
    shared_->generation.store(generation + 1, std::memory_order_release);
    wake_all(shared_->generation);
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  while (shared_->generation.load(std::memory_order_acquire) == generation) {
    wait_for_change(shared_->generation, generation);
    // A meeting that is over counts, also where a rank ended right after it.
    if (shared_->generation.load(std::memory_order_acquire) != generation) return;
    check(rank, what);
    const double waited =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (waited < timeout_s_) continue;
    std::string missing;
    for (std::uint32_t other = 0; other < ranks_; ++other) {
      if (place(other).meetings.load(std::memory_order_acquire) == generation + 1) continue;
      missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(other);
    }
    char words[160];
    std::snprintf(words, sizeof(words), "%s did not come within %.0f s", missing.c_str(),
                  timeout_s_);
    break_up(words);
    throw Error(MILLPOND_E_TIMEOUT, what, words)
        .remedy("See what that process does; --rank-timeout allows more");
  }
}

}  // namespace millpond::processes
