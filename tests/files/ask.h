// A call of files/1: a request, and the answer as JSON.
#ifndef MILLPOND_TESTS_FILES_ASK_H_
#define MILLPOND_TESTS_FILES_ASK_H_

#include <nlohmann/json.hpp>
#include <string>

#include "millpond/files.h"
#include "tests/store/opened_plugin.h"

namespace millpond::tests {

using Json = nlohmann::json;

inline const millpond_ext_files& files() {
  return *static_cast<const millpond_ext_files*>(extension(MILLPOND_EXT_FILES_1));
}

// The answer; null where the call failed (then `status` says why).
inline Json ask(millpond_files_fn entry, const Json& request, Status* status) {
  const std::string text = request.dump();
  std::string answer;
  const millpond_sink_fn sink = [](void* context, millpond_str piece) {
    static_cast<std::string*>(context)->append(piece.ptr, piece.len);
  };
  const std::int32_t code = entry(nullptr, str(text), sink, &answer, status);
  return code == MILLPOND_OK ? Json::parse(answer) : Json();
}

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_FILES_ASK_H_
