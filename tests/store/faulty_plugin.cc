#include "tests/store/faulty_plugin.h"

#include <cstdlib>
#include <cstring>

#include "millpond/error.hpp"
#include "plugin/io/threads_engine.h"
#include "plugin/io/uring_engine.h"
#include "tests/store/opened_plugin.h"

namespace millpond {
namespace {

plugin::FaultEngine* newest = nullptr;

}  // namespace

namespace plugin {

EngineChoice make_raw_engine(const std::string& kind, std::uint32_t queue_depth) {
  const std::uint32_t depth = queue_depth == 0 ? 32 : queue_depth;
  std::unique_ptr<RawEngine> real;
  if (kind != "threads") {
    try {
      real = make_uring_engine(depth);
    } catch (const Error&) {
      if (kind == "io_uring") throw;
    }
  }
  if (real == nullptr) real = make_threads_engine(depth);
  auto faulty = std::make_unique<FaultEngine>(std::move(real));
  newest = faulty.get();
  return {std::move(faulty), "an engine that fails on purpose"};
}

}  // namespace plugin

namespace tests {

plugin::FaultEngine& faults() { return *newest; }

const millpond_table_v1& table() {
  static const millpond_table_v1* const kTable = millpond_open_v1(MILLPOND_ABI_MINOR, nullptr);
  if (kTable == nullptr) std::abort();
  return *kTable;
}

const void* extension(const char* name) {
  return table().get_extension(nullptr, {name, std::strlen(name)});
}

}  // namespace tests
}  // namespace millpond
