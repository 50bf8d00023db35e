// Memory that the processes of a run share, and the place where they wait for one another. It is
// made before the ranks are forked and has no name: nothing is left when they are gone.
#ifndef MILLPOND_HOST_ADAPTERS_PROCESSES_MEETING_H_
#define MILLPOND_HOST_ADAPTERS_PROCESSES_MEETING_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace millpond::processes {

class Meeting {
 public:
  // `slot_bytes`: what each rank may put down for the others at a time; a multiple of 64.
  // `timeout_s`: how long one waits for a rank that neither comes nor ends.
  Meeting(std::uint32_t ranks, std::size_t slot_bytes, double timeout_s);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  std::uint32_t ranks() const { return ranks_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  double timeout_s() const { return timeout_s_; }
  std::byte* slot(std::uint32_t rank) const;

  // Returns when every rank has called it as often as this one. What a rank wrote to its slot
  // before, all can read afterwards. `what` is for messages. Throws Error(E_PEER) where a rank has
  // ended, Error(E_TIMEOUT) where one stays away, and in every call after one that threw.
  void meet(std::uint32_t rank, const char* what);

  // Throws as meet does, without waiting. For other ways of waiting, like a GPU's.
  void check(std::uint32_t rank, const char* what) const;

  // Tells the others: `how` ends the sentence "rank 3 ...". By whoever saw it end.
  void mark_ended(std::uint32_t rank, const std::string& how);
  // From now on every rank's calls fail with this reason.
  void break_up(const std::string& why);
  std::string broken() const;  // that reason; empty: none

  // For ways of exchange that do not meet here: counts this rank's calls, and names the ranks that
  // have made fewer.
  void count_call(std::uint32_t rank);
  std::string ranks_behind(std::uint32_t rank) const;

 private:
  struct Shared;
  struct Place;
  Place& place(std::uint32_t rank) const;

  std::uint32_t ranks_;
  std::size_t slot_bytes_;
  double timeout_s_;
  std::size_t bytes_;
  Shared* shared_;
};

}  // namespace millpond::processes

#endif  // MILLPOND_HOST_ADAPTERS_PROCESSES_MEETING_H_
