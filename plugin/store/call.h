// What every ABI call of a runtime does first and last: the right process, not from inside a
// callback, one thread at a time; the log at its end.
#ifndef MILLPOND_PLUGIN_STORE_CALL_H_
#define MILLPOND_PLUGIN_STORE_CALL_H_

#include "plugin/store/runtime.h"

namespace millpond::plugin {

class Call {
 public:
  // Throws Error(E_FORKED) in a child and Error(E_STATE) inside a callback; else waits its turn.
  Call(Runtime& runtime, const char* operation);
  ~Call();  // delivers the log, lets the next one in
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  Runtime& runtime_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_CALL_H_
