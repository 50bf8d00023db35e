// The host's allgather for ranks that are threads of one process.
#ifndef MILLPOND_TESTS_CHECKPOINT_MEETING_H_
#define MILLPOND_TESTS_CHECKPOINT_MEETING_H_

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "millpond/host.h"

namespace millpond::tests {

// An allgather among threads. The chosen round fails on the chosen rank, after the others have it.
class Meeting {
 public:
  explicit Meeting(std::uint32_t ranks) : ranks_(ranks) {}
  bool gather(std::uint32_t rank, const void* send, void* receive, std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    const std::uint64_t round = round_;
    board_.resize(ranks_ * bytes);
    std::memcpy(board_.data() + rank * bytes, send, bytes);
    if (++arrived_ == ranks_) {
      last_ = std::move(board_);
      board_.clear();
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round; });
    }
    std::memcpy(receive, last_.data(), ranks_ * bytes);
    return round != fail_round || rank != fail_rank;
  }
  std::uint64_t rounds() const { return round_; }

  std::uint64_t fail_round = UINT64_MAX;
  std::uint32_t fail_rank = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint8_t> board_, last_;
  std::uint32_t ranks_;
  std::uint32_t arrived_ = 0;
  std::uint64_t round_ = 0;
};

inline void offer_allgather(millpond_host_api& api) {
  api.allgather = [](void*, millpond_group group, const void* send, void* receive,
                     std::uint64_t bytes, std::int32_t* answer) {
    auto& meeting = *reinterpret_cast<Meeting*>(group.token);
    const bool well = meeting.gather(group.rank, send, receive, bytes);
    *answer = well ? MILLPOND_OK : MILLPOND_E_PEER;
  };
}

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_CHECKPOINT_MEETING_H_
