// phase/1
#include "plugin/exports/boundary.h"
#include "plugin/exports/entry.h"
#include "plugin/exports/extensions.h"

namespace millpond::plugin {
namespace {

std::int32_t suspend(millpond_runtime* runtime, std::uint64_t flags_in, millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    RuntimeEntry entry(runtime, "suspend", flags);
    entry->suspend(flags_in);
  });
}

std::int32_t resume(millpond_runtime* runtime, millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    RuntimeEntry entry(runtime, "resume", flags);
    entry->resume();
  });
}

constexpr millpond_ext_phase kPhase{
    {sizeof(millpond_ext_phase), MILLPOND_TYPE_EXT_PHASE}, suspend, resume};

}  // namespace

const millpond_ext_phase* phase_extension() { return &kPhase; }

}  // namespace millpond::plugin
