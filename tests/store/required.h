// Conditions of code that runs in a child process: what does not hold is thrown, and the parent
// shows it.
#ifndef MILLPOND_TESTS_STORE_REQUIRED_H_
#define MILLPOND_TESTS_STORE_REQUIRED_H_

#include <cstdint>
#include <string>

#include "tests/io/sandbox.h"
#include "tests/store/training.h"

namespace millpond::tests {

inline void require_code(std::int32_t code, std::int32_t wanted, const Status& status,
                         const char* what) {
  sandbox::require(code == wanted, std::string(what) + ": " + status.text());
}

inline void require_ok(std::int32_t code, const Status& status, const char* what) {
  require_code(code, MILLPOND_OK, status, what);
}

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_STORE_REQUIRED_H_
