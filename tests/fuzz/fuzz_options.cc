// Any text as options: refused with an Error that names a field, or read into values that keep what
// the plugin builds on.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "millpond/error.hpp"
#include "plugin/options/options.h"
#include "tests/fuzz/demand.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millpond;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const plugin::Options options = plugin::parse_options(text, 0);
    fuzz::demand(!options.scratch.empty() && options.scratch.size() <= 64);
    for (const std::string& path : options.scratch)
      fuzz::demand(!path.empty() && path.find('\0') == std::string::npos);
    fuzz::demand(options.local_rank < options.local_size);
    fuzz::demand(options.block_elements % 4096 == 0 && options.tile_elements % 4096 == 0);
    fuzz::demand(options.block_elements == 0 ||
                 options.tile_elements % options.block_elements == 0);
    fuzz::demand(options.bucket_elements > 0 && options.io_timeout_s > 0);
    fuzz::demand(options.log_level <= 3);
  } catch (const Error& error) {
    fuzz::demand(error.code() == MILLPOND_E_OPTION && error.field_name().starts_with("options"));
  }
  return 0;
}
