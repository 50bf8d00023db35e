#include "tests/layers/rules.h"

namespace millpond::layers {

// ARCHITECTURE.md's one way, folder by folder: data and includes go down this list, never up.
const std::vector<FolderRule>& folder_rules() {
  static const std::vector<FolderRule> rules = {
      {"abi",
       {"millpond/", "base.h", "host.h", "plugin.h", "files.h", "structs.inc", "constants.inc"}},
      {"kernels", {"millpond/", "kernels/"}},
      {"checkpoint", {"millpond/", "checkpoint/", "kernels/storage.h"}},
      {"plugin/core", {"millpond/", "plugin/core/"}},
      {"plugin/options", {"millpond/", "plugin/options/", "kernels/storage.h"}},
      {"plugin/layout", {"millpond/", "plugin/layout/", "kernels/storage.h"}},
      {"plugin/guard", {"millpond/", "plugin/guard/", "kernels/"}},
      {"plugin/io", {"millpond/", "plugin/io/", "plugin/core/", "checkpoint/file_system.h"}},
      {"plugin/probe", {"millpond/", "plugin/probe/", "plugin/io/", "plugin/core/", "kernels/"}},
      {"plugin/pipeline",
       {"millpond/", "plugin/pipeline/", "plugin/layout/", "plugin/io/", "plugin/core/",
        "checkpoint/block_sum.h", "kernels/storage.h"}},
      // Implements the pipeline's interface of what is done on a tile.
      {"plugin/device",
       {"millpond/", "plugin/device/", "plugin/pipeline/", "plugin/layout/", "plugin/core/",
        "kernels/"}},
      {"plugin/store",
       {"millpond/", "plugin/store/", "plugin/guard/", "plugin/options/", "plugin/layout/",
        "plugin/pipeline/", "plugin/device/", "plugin/io/", "plugin/probe/", "plugin/core/",
        "checkpoint/", "kernels/"}},
      {"plugin/files",
       {"millpond/", "plugin/files/", "plugin/store/", "plugin/guard/", "plugin/layout/",
        "plugin/core/", "checkpoint/", "kernels/"}},
      {"plugin/exports",
       {"millpond/", "plugin/", "checkpoint/", "build_facts.h", "descriptor.inc"}},
      // Hosts know the contract, and one another's public parts downwards; nothing of the plugin.
      {"host_adapters/client", {"millpond/", "host_adapters/client/", "handshake.pb.h"}},
      {"host_adapters/command_line", {"millpond/", "host_adapters/command_line/"}},
      {"host_adapters/processes", {"millpond/", "host_adapters/processes/"}},
      {"host_adapters/sample",
       {"millpond/", "host_adapters/client/", "host_adapters/command_line/",
        "host_adapters/processes/", "host_adapters/sample/", "handshake.pb.h"}},
      {"host_adapters/cli",
       {"millpond/", "host_adapters/client/", "host_adapters/command_line/",
        "host_adapters/processes/", "host_adapters/cli/"}},
      {"host_adapters", {"millpond/"}},
      {"examples", {"millpond/"}},
      // Tests reach everything.
      {"tests", {""}},
  };
  return rules;
}

const std::vector<LibraryRule>& library_rules() {
  static const std::vector<LibraryRule> rules = {
      {"millpond/client/", {"host_adapters/", "examples/", "tests/"}},
      {"millpond/handshake.pb.h", {"host_adapters/", "examples/", "tests/"}},
      {"google/protobuf", {"host_adapters/", "tests/"}},
      {"boost/", {"host_adapters/", "tests/"}},
      {"CLI/", {"host_adapters/", "tests/"}},
      {"protozero/", {"plugin/guard/", "tests/"}},
      // R07: a check is code, never an assertion that a build flag drops.
      {"cassert", {"tests/"}},
      {"assert.h", {"tests/"}},
      {"liburing", {"plugin/io/", "plugin/probe/", "tests/"}},
      {"xxhash", {"checkpoint/", "host_adapters/", "tests/"}},
      // The sample host trains a model of its own on the GPU; no other host needs CUDA.
      {"cuda",
       {"kernels/", "plugin/device/", "plugin/pipeline/", "plugin/probe/", "host_adapters/sample/",
        "tests/"}},
      {"torch/", {}},
      {"Python", {}},
      {"ATen/", {}},
  };
  return rules;
}

}  // namespace millpond::layers
