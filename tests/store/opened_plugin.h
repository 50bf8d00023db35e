// libmillpond.so as a host has it: opened with dlopen, used through its table only.
#ifndef MILLPOND_TESTS_STORE_OPENED_PLUGIN_H_
#define MILLPOND_TESTS_STORE_OPENED_PLUGIN_H_

#include <cstring>
#include <string>

#include "millpond/checkpoint.h"
#include "millpond/phase.h"
#include "millpond/report.h"
#include "millpond/state.h"

namespace millpond::tests {

const millpond_table_v1& table();
const void* extension(const char* name);
inline const millpond_ext_report& reports() {
  return *static_cast<const millpond_ext_report*>(extension(MILLPOND_EXT_REPORT_1));
}
inline const millpond_ext_state& states() {
  return *static_cast<const millpond_ext_state*>(extension(MILLPOND_EXT_STATE_1));
}
inline const millpond_ext_phase& phases() {
  return *static_cast<const millpond_ext_phase*>(extension(MILLPOND_EXT_PHASE_1));
}
inline const millpond_ext_checkpoint& checkpoints() {
  return *static_cast<const millpond_ext_checkpoint*>(extension(MILLPOND_EXT_CHECKPOINT_1));
}

// A status ready to be filled; message and code after a call.
struct Status : millpond_status {
  Status() : millpond_status{} { header = {sizeof(millpond_status), MILLPOND_TYPE_STATUS}; }
  std::string text() const { return std::to_string(code) + " [" + field + "] " + message; }
};

inline millpond_str str(const std::string& text) { return {text.data(), text.size()}; }

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_STORE_OPENED_PLUGIN_H_
