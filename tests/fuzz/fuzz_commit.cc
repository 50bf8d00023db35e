// Any text with its right digest behind it as COMMIT.json, so that what lies behind the digest is
// reached; and the text as it is.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/commit.h"
#include "checkpoint/digest.h"
#include "millpond/error.hpp"
#include "tests/fuzz/demand.h"

namespace {

constexpr char kSaveId[] = "0123456789abcdef0123456789abcdef";

void parse(std::string_view text) {
  using namespace millpond;
  checkpoint::Commit commit;
  try {
    commit = checkpoint::parse_commit(text, "COMMIT.json", kSaveId);
  } catch (const Error& error) {
    fuzz::demand(error.code() == MILLPOND_E_CORRUPT || error.code() == MILLPOND_E_VERSION);
    return;
  }
  const std::string json = checkpoint::to_json(commit);
  fuzz::demand(checkpoint::to_json(checkpoint::parse_commit(json, "COMMIT.json", kSaveId)) == json);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  parse(text);
  parse(std::string(text) + ",\n\"digest\": \"" + millpond::checkpoint::digest(text) + "\"}\n");
  return 0;
}
