// What a directory can do, found by trying.
#ifndef MILLPOND_PLUGIN_IO_PROBE_H_
#define MILLPOND_PLUGIN_IO_PROBE_H_

#include <string>

#include "plugin/io/scratch.h"

namespace millpond::plugin {

// A new file for reading and writing in `directory`, 0600, without a name when the call returns:
// O_TMPFILE where `anonymous`, else a named one that is unlinked while open (such a file cannot be
// linked into a checkpoint later, and goes with its descriptor as well). -1 and errno on failure.
int open_unnamed(int directory, bool anonymous, bool direct);

// direct: "auto" or "true" try O_DIRECT with a real write and read of 4096 bytes; "false" does not.
// Throws where nothing at all can be made, and for "true" where O_DIRECT does not work.
DirectoryAbility probe_directory(int directory, const std::string& path, const std::string& direct);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_PROBE_H_
