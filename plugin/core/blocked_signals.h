// Holds back every signal of the calling thread while it lives: a thread started meanwhile inherits
// the mask, so that the host's handlers run on its own threads, and a call is not interrupted.
#ifndef MILLPOND_PLUGIN_CORE_BLOCKED_SIGNALS_H_
#define MILLPOND_PLUGIN_CORE_BLOCKED_SIGNALS_H_

#include <pthread.h>
#include <signal.h>

namespace millpond::plugin {

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    held_ = pthread_sigmask(SIG_BLOCK, &all, &before_) == 0;
  }
  ~BlockedSignals() {
    if (held_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
  bool held_ = false;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_CORE_BLOCKED_SIGNALS_H_
