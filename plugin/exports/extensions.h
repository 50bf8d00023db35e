// The extensions' tables, static. Each lives in an ext_*.cc.
#ifndef MILLPOND_PLUGIN_EXPORTS_EXTENSIONS_H_
#define MILLPOND_PLUGIN_EXPORTS_EXTENSIONS_H_

#include <cstdint>
#include <string_view>

#include "millpond/checkpoint.h"
#include "millpond/files.h"
#include "millpond/phase.h"
#include "millpond/probe.h"
#include "millpond/report.h"
#include "millpond/state.h"

namespace millpond::plugin {

const millpond_ext_report* report_extension();
const millpond_ext_checkpoint* checkpoint_extension();
const millpond_ext_state* state_extension();
const millpond_ext_phase* phase_extension();
const millpond_ext_files* files_extension();
const millpond_ext_probe* probe_extension();

// The table of that name, or NULL.
const void* find_extension(std::string_view name);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_EXPORTS_EXTENSIONS_H_
