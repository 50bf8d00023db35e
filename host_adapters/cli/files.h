// `millpond inspect | verify | reshard | import | export | diff`: thin over files/1.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_FILES_H_
#define MILLPOND_HOST_ADAPTERS_CLI_FILES_H_

#include <string>

#include "host_adapters/cli/arguments.h"
#include "host_adapters/cli/progress.h"

namespace CLI {
class App;
}

namespace millpond::cli {

// Adds the six commands; the one that is given sets arguments.command and fills arguments.files.
void add_files_commands(CLI::App* app, Arguments& arguments);

struct FilesAnswer {
  std::string table;  // for a person
  std::string json;   // what the plugin answered
  bool equal = true;  // diff: the saves are the same
};
// Throws client::PluginError in the plugin's words, Error(E_IO) for a layout that cannot be read.
FilesAnswer run_files(const FilesArguments& arguments, Progress& progress);

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_FILES_H_
