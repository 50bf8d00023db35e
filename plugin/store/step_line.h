// The log's line of a step.
#ifndef MILLPOND_PLUGIN_STORE_STEP_LINE_H_
#define MILLPOND_PLUGIN_STORE_STEP_LINE_H_

#include <span>
#include <string_view>

#include "millpond/report.h"

namespace millpond::plugin {

// Into `room`, cut at its end; nothing is allocated.
std::string_view step_line(const millpond_step_figures& figures, std::string_view uid,
                           std::span<char> room);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_STEP_LINE_H_
