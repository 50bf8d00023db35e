// Any text as a manifest: refused as corrupt, or a manifest that is the same after writing and
// reading it again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "checkpoint/manifest.h"
#include "millpond/error.hpp"
#include "tests/fuzz/demand.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millpond;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  checkpoint::Manifest manifest;
  try {
    manifest = checkpoint::parse_manifest(text, "manifest.json");
  } catch (const Error& error) {
    fuzz::demand(error.code() == MILLPOND_E_CORRUPT || error.code() == MILLPOND_E_VERSION);
    return 0;
  }
  const std::string json = checkpoint::to_json(manifest);
  fuzz::demand(checkpoint::to_json(checkpoint::parse_manifest(json, "manifest.json")) == json);
  return 0;
}
