// The other ranks of a bench on this machine, with whom it does the same at the same time. A bench
// of its own has none: nothing here waits then.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_COMPANY_H_
#define MILLPOND_HOST_ADAPTERS_CLI_COMPANY_H_

#include <cstdint>

#include "host_adapters/processes/meeting.h"

namespace millpond::cli {

class Company {
 public:
  Company() = default;
  // The meeting must outlive it.
  Company(processes::Meeting& meeting, std::uint32_t rank) : meeting_(&meeting), rank_(rank) {}

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return meeting_ == nullptr ? 1 : meeting_->ranks(); }

  // All ranks are here when it returns. Throws Error(E_PEER, E_TIMEOUT).
  void meet(const char* what) const {
    if (meeting_ != nullptr) meeting_->meet(rank_, what);
  }
  // On one rank after another, each alone.
  template <class Work>
  void in_turn(const char* what, Work work) const {
    for (std::uint32_t turn = 0; turn < size(); ++turn) {
      meet(what);
      if (turn == rank_) work();
    }
    meet(what);
  }
  // On rank 0, while the others wait.
  template <class Work>
  void first_alone(const char* what, Work work) const {
    meet(what);
    if (rank_ == 0) work();
    meet(what);
  }

 private:
  processes::Meeting* meeting_ = nullptr;
  std::uint32_t rank_ = 0;
};

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_COMPANY_H_
