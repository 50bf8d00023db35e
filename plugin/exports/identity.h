// The identity as the rest of the plugin sees it.
#ifndef MILLPOND_PLUGIN_EXPORTS_IDENTITY_H_
#define MILLPOND_PLUGIN_EXPORTS_IDENTITY_H_

#include "millpond/plugin.h"

namespace millpond::plugin {

// Static data, there before any code of the plugin has run.
const millpond_identity& identity();

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_EXPORTS_IDENTITY_H_
