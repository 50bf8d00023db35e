// What a scratch directory can do, found by trying: everything made here is gone afterwards.
#ifndef MILLPOND_PLUGIN_PROBE_DIRECTORY_H_
#define MILLPOND_PLUGIN_PROBE_DIRECTORY_H_

#include <cstdint>
#include <string>

#include "plugin/probe/check.h"

namespace millpond::plugin {

struct DirectoryRequest {
  std::string path;
  std::string direct = "auto";     // as the option
  std::uint64_t needed_bytes = 0;  // of state to come; 0: not known
};

struct DirectoryFacts {
  std::string path;
  bool usable = false;     // a scratch file can be made here
  std::string filesystem;  // "ext4", "xfs", ...; "0x..." for others
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // for this user
  bool direct = false;           // O_DIRECT
  bool tmpfile = false;          // O_TMPFILE
  bool link = false;             // such a file can be given a name: saves without copying
  bool reflink = false;          // FICLONE
  std::string reason;            // why not, of the above
  Checks checks;                 // "directory", "filesystem", "o_direct", "o_tmpfile", "reflink",
                                 // "free_space"
};

// Does not throw for what a directory cannot do: that is a finding.
DirectoryFacts look_at_directory(const DirectoryRequest& request);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PROBE_DIRECTORY_H_
