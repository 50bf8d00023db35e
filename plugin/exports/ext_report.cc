// report/1
#include "plugin/exports/boundary.h"
#include "plugin/exports/entry.h"
#include "plugin/exports/extensions.h"
#include "plugin/exports/read_struct.h"

namespace millpond::plugin {
namespace {

std::int32_t last_step(millpond_store* store, millpond_step_figures* figures,
                       millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "report last step", flags);
    millpond_step_figures filled{};
    entry->last_step(&filled);
    write_struct(filled, figures);
  });
}

std::int32_t plan(millpond_store* store, millpond_plan_figures* figures, millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "report plan", flags);
    millpond_plan_figures filled{};
    entry->plan_figures(&filled);
    write_struct(filled, figures);
  });
}

std::int32_t runtime(millpond_runtime* handle, millpond_runtime_figures* figures,
                     millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    RuntimeEntry entry(handle, "report runtime", flags);
    millpond_runtime_figures filled{};
    entry->figures(&filled);
    write_struct(filled, figures);
  });
}

constexpr millpond_ext_report kReport{
    {sizeof(millpond_ext_report), MILLPOND_TYPE_EXT_REPORT}, last_step, plan, runtime};

}  // namespace

const millpond_ext_report* report_extension() { return &kReport; }

}  // namespace millpond::plugin
