// Where an operation on checkpoint files puts its answer and tells how far it is.
#ifndef MILLPOND_PLUGIN_FILES_WORK_H_
#define MILLPOND_PLUGIN_FILES_WORK_H_

#include <cstdint>
#include <functional>
#include <string_view>

namespace millpond::plugin {

struct FilesWork {
  std::function<void(std::string_view)> emit;  // pieces of one JSON document, in order
  // Bytes done and in all; throws Error(E_CANCELLED). May be empty.
  std::function<void(std::uint64_t, std::uint64_t)> beat;
  void tell(std::uint64_t done, std::uint64_t total) const {
    if (beat) beat(done, total);
  }
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_FILES_WORK_H_
