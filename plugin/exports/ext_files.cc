// files/1: declared, and answered with MILLPOND_E_UNSUPPORTED in this version; and the list of all
// extensions by name.
#include "millpond/error.hpp"
#include "plugin/exports/boundary.h"
#include "plugin/exports/extensions.h"

namespace millpond::plugin {
namespace {

std::int32_t unsupported(millpond_runtime* /*runtime*/, millpond_str /*request_json*/,
                         millpond_sink_fn /*sink*/, void* /*context*/, millpond_status* status) {
  return guarded(status, [] {
    throw Error(MILLPOND_E_UNSUPPORTED, "extension",
                "this version of the plugin declares the entry and does not have it yet")
        .remedy("Use a newer plugin");
  });
}

constexpr millpond_ext_files kFiles{{sizeof(millpond_ext_files), MILLPOND_TYPE_EXT_FILES},
                                    unsupported,
                                    unsupported,
                                    unsupported,
                                    unsupported,
                                    unsupported,
                                    unsupported};

}  // namespace

const millpond_ext_files* files_extension() { return &kFiles; }

const void* find_extension(std::string_view name) {
  if (name == MILLPOND_EXT_REPORT_1) return report_extension();
  if (name == MILLPOND_EXT_CHECKPOINT_1) return checkpoint_extension();
  if (name == MILLPOND_EXT_STATE_1) return state_extension();
  if (name == MILLPOND_EXT_PHASE_1) return phase_extension();
  if (name == MILLPOND_EXT_FILES_1) return files_extension();
  if (name == MILLPOND_EXT_PROBE_1) return probe_extension();
  return nullptr;
}

}  // namespace millpond::plugin
