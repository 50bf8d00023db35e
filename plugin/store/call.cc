#include "plugin/store/call.h"

namespace millpond::plugin {

Call::Call(Runtime& runtime, const char* operation) : runtime_(runtime) {
  // In a forked child the mutex may be held for ever by a thread that does not exist there.
  if (runtime.forked()) {
    throw Error(MILLPOND_E_FORKED, operation,
                "the caller is a forked child of the process that made the runtime; its threads, "
                "rings and memory did not come along")
        .remedy("Use the store in the parent only, or make a runtime of the child's own");
  }
  if (runtime.inside_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    throw Error(
        MILLPOND_E_STATE, operation,
        "called from inside a callback of the same runtime: the call that runs the callback "
        "has not finished")
        .remedy("Call after the outer call has returned");
  }
  runtime_.mutex_.lock();
  runtime_.inside_.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

Call::~Call() {
  runtime_.host_.deliver_log();
  runtime_.inside_.store(std::thread::id{}, std::memory_order_relaxed);
  runtime_.mutex_.unlock();
}

}  // namespace millpond::plugin
